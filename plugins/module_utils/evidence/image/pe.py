# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse EFI programs (PE/COFF): sections, and the digest that firmware measures.

The digest excludes the checksum, the signature and its entry in the header (Windows Authenticode Portable Executable
Signature Format 1.0; TCG PC Client Platform Firmware Profile 1.05, 3.3.4.4), so signing does not change it. The parser
is strict: it checks every offset against the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import PolicyError
from ...reasons import Reason
from ..eventlog import kinds

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_IMAGE_BYTES = 1 << 30
"""Unified kernel images with all firmware files have about 200 MiB."""

_MAX_SECTIONS = 96
_SECTION_BYTES = 40
_WIDE = 0x20B
_PAGE = 4096
_SIGNATURE_STEP = 8
_FORMATS = {0x10B: 96, _WIDE: 112}
_CERTIFICATES = 4
_OPTIONAL_MINIMUM = 68


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One EFI program: the digest of its code and data (SHA-256), and its sections by name."""

    digest: bytes
    sections: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The place for another section of a program: the first free address, and the alignment of addresses.

    The alignment is at least one page (4096 bytes).
    """

    address: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    size: int
    address: int
    raw_at: int
    raw_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Offsets and sizes in bytes: checksum, directory entry of the signature, headers, signature."""

    checksum_at: int
    certificate_entry_at: int
    header_size: int
    certificates_size: int
    sections: tuple[_Section, ...]


def parse_program(data: bytes) -> Program:
    """Return the program in ``data``; raises `PolicyError` IMAGE_MALFORMED, also for a section that occurs twice."""
    layout = _layout(data)
    digest = _digest(data, layout)  # first: refuses overlapping sections before they are copied
    sections: dict[str, bytes] = {}
    for one in layout.sections:
        if one.name in sections:
            raise _malformed("every section once", f"{one.name} twice")
        sections[one.name] = data[one.raw_at : one.raw_at + min(one.size or one.raw_size, one.raw_size)]
    return Program(digest=digest, sections=sections)


def room_behind(data: bytes) -> Room:
    """Return the place for another section of the program in ``data``; raises `PolicyError` IMAGE_MALFORMED."""
    layout, header = _layout(data), _number(data, 0x3C, 4) + 24
    wide = _number(data, header, 2) == _WIDE
    base, step = (
        _number(data, header + (24 if wide else 28), 8 if wide else 4),
        max(_PAGE, _number(data, header + 32, 4)),
    )
    end = max((one.address + max(one.size, one.raw_size) for one in layout.sections), default=0)
    return Room(address=base + -(-end // step) * step, step=step)


def without_time(data: bytes) -> bytes:
    """Return the program with zero timestamp and checksum, which firmware ignores, for reproducible bytes.

    The program is padded to the alignment of signatures, so signing does not change its digest.
    """
    layout, header = _layout(data), _number(data, 0x3C, 4)
    cleaned = bytearray(data)
    cleaned[header + 8 : header + 12] = bytes(4)
    cleaned[layout.checksum_at : layout.checksum_at + 4] = bytes(4)
    return bytes(cleaned) + bytes(-len(cleaned) % _SIGNATURE_STEP)


def signature_of(data: bytes) -> bytes:
    """Return the signatures at the end of the program, empty without any; raises IMAGE_MALFORMED.

    The signatures are not verified.
    """
    return data[len(data) - _layout(data).certificates_size :]


def _digest(data: bytes, layout: _Layout) -> bytes:
    view = memoryview(data)
    entry = layout.certificate_entry_at
    total = layout.header_size + sum(one.raw_size for one in layout.sections)
    end = len(data) - layout.certificates_size
    if total > end:
        raise _malformed("sections beside each other and in front of the signature", "some that overlap")
    hashed = hashlib.sha256(view[: layout.checksum_at])
    hashed.update(view[layout.checksum_at + 4 : entry])
    hashed.update(view[entry + 8 : layout.header_size])
    for one in sorted(layout.sections, key=lambda section: section.raw_at):
        hashed.update(view[one.raw_at : one.raw_at + one.raw_size])
    hashed.update(view[total:end])
    return hashed.digest()


def _layout(data: bytes) -> _Layout:
    if len(data) > MAX_IMAGE_BYTES:
        raise _malformed(f"at most {MAX_IMAGE_BYTES} bytes", f"{len(data)}")
    header = _number(data, 0x3C, 4)
    if data[:2] != b"MZ" or data[header : header + 4] != b"PE\0\0":
        raise _malformed("an EFI program (MZ, PE)", "another file")
    count, optional_size, optional = _number(data, header + 6, 2), _number(data, header + 20, 2), header + 24
    directories = _FORMATS.get(_number(data, optional, 2))
    if directories is None or optional_size < _OPTIONAL_MINIMUM or count > _MAX_SECTIONS:
        raise _malformed(f"PE32 or PE32+ with at most {_MAX_SECTIONS} sections", "another header")
    entry, listed = optional + directories + 8 * _CERTIFICATES, _number(data, optional + directories - 4, 4)
    table, header_size = optional + optional_size, _number(data, optional + 60, 4)
    if listed <= _CERTIFICATES or entry + 8 > table or table + count * _SECTION_BYTES > min(header_size, len(data)):
        raise _malformed("a directory of certificates and sections within the headers", "another header")
    return _Layout(
        checksum_at=optional + 64,
        certificate_entry_at=entry,
        header_size=header_size,
        certificates_size=_number(data, entry + 4, 4),
        sections=tuple(_section(data, table + at * _SECTION_BYTES) for at in range(count)),
    )


def _section(data: bytes, at: int) -> _Section:
    found = _Section(
        name=data[at : at + 8].rstrip(b"\0").decode("latin-1"),
        size=_number(data, at + 8, 4),
        address=_number(data, at + 12, 4),
        raw_size=_number(data, at + 16, 4),
        raw_at=_number(data, at + 20, 4),
    )
    if found.raw_at + found.raw_size > len(data):
        raise _malformed("sections within the file", f"{found.name} beyond it")
    return found


def _number(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise _malformed("a whole header", "a file that ends in it")
    return int.from_bytes(data[at : at + size], "little")


def _malformed(expected: str, got: str) -> PolicyError:
    return PolicyError(f"expected {expected} in the image, got {got}", reason=Reason.IMAGE_MALFORMED)


# A unified kernel image (UAPI.5): digests of the program, of its kernel, and of its measured sections.

_STUB_NAMES = ("systemd", "systemd-stub")
_VERSION_COLUMN = 4
_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelImage:
    """The measured parts of an image: digests of ``program``, ``kernel`` and of the contents of ``sections``.

    ``stub`` is the version of systemd-stub in .sbat, 0 if unknown; ``command_line`` and ``release`` are the texts of
    .cmdline and .uname.
    """

    program: bytes
    kernel: bytes
    sections: Mapping[str, bytes]
    stub: int
    command_line: str = ""
    release: str = ""


def read_image(data: bytes) -> KernelImage:
    """Return the image in ``data``; raises `PolicyError` IMAGE_MALFORMED, also for a program without kernel."""
    program = parse_program(data)
    if ".linux" not in program.sections:
        held = ", ".join(sorted(program.sections))
        raise PolicyError(
            f"expected a unified kernel image with a section .linux, got one with {held}", reason=Reason.IMAGE_MALFORMED
        )
    return KernelImage(
        program=program.digest,
        kernel=parse_program(program.sections[".linux"]).digest,
        sections={
            name: hashlib.sha256(program.sections[name]).digest()
            for name in kinds.SECTIONS
            if program.sections.get(name)
        },
        stub=_stub_version(program.sections.get(".sbat", b"")),
        command_line=_text(program.sections.get(".cmdline", b"")),
        release=_text(program.sections.get(".uname", b"")),
    )


def _text(content: bytes) -> str:
    return content[:_MAX_TEXT].decode(errors="replace").strip(" \t\r\n\0")


def _stub_version(sbat: bytes) -> int:
    for line in _text(sbat).splitlines():
        columns = line.split(",")
        if columns[0] in _STUB_NAMES and len(columns) > _VERSION_COLUMN:
            number = columns[_VERSION_COLUMN].partition(".")[0]
            return int(number) if number.isascii() and number.isdigit() else 0
    return 0
