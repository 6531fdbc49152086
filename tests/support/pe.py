# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EFI programs from sections, signed or not; they are not executable."""

from __future__ import annotations

import struct

_FILE_ALIGNMENT = 512
_OPTIONAL = 112 + 16 * 8
_HEADERS = 4096
SBAT = (
    b"sbat,1,SBAT Version,sbat,1,https://example.org\nsystemd,1,The systemd Developers,systemd,%d,https://systemd.io\n"
)


def program(sections: dict[str, bytes], *, signature: bytes = b"") -> bytes:
    """Return a PE32+ program with ``sections`` in order, followed by ``signature``."""
    table, raw, at = b"", b"", _HEADERS
    for name, content in sections.items():
        padded = content + bytes(-len(content) % _FILE_ALIGNMENT)
        table += struct.pack("<8sIIIIIIHHI", name.encode(), len(content), at, len(padded), at, 0, 0, 0, 0, 0x40000040)
        raw, at = raw + padded, at + len(padded)
    optional = bytearray(_OPTIONAL)
    struct.pack_into("<H", optional, 0, 0x20B)
    struct.pack_into("<III", optional, 32, 4096, _FILE_ALIGNMENT, 0)
    struct.pack_into("<II", optional, 56, at, _HEADERS)
    struct.pack_into("<I", optional, 64, 0xC0FFEE if signature else 0)
    struct.pack_into("<I", optional, 108, 16)
    if signature:
        struct.pack_into("<II", optional, 112 + 4 * 8, at, len(signature))
    coff = struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, _OPTIONAL, 0x22E)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + coff + bytes(optional) + table
    return head.ljust(_HEADERS, b"\0") + raw + signature


def kernel(text: bytes = b"kernel") -> bytes:
    """Return a small EFI program in place of a kernel."""
    return program({".text": text})


def image(*, stub: int = 257, **sections: bytes) -> bytes:
    """Return a unified kernel image; ``sections`` by name without the dot, added to default sections."""
    content = {"text": b"stub", "sbat": SBAT % stub, "osrel": b"ID=debian\n", "cmdline": b"root=LABEL=root rw"}
    content |= {"initrd": b"initrd", "uname": b"6.12.1", "linux": kernel(), **sections}
    return program({f".{name}": data for name, data in content.items()})
