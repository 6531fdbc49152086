# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A unified kernel image (UAPI.5): the program, the kernel in it, and the digests of its measured sections."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import PolicyError
from ...reasons import Reason
from ..eventlog import kinds
from .pe import parse_program

if TYPE_CHECKING:
    from collections.abc import Mapping

_STUB_NAMES = ("systemd", "systemd-stub")
_VERSION_COLUMN = 4
_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelImage:
    """What of an image is measured: ``program`` and ``kernel`` are digests of EFI programs, ``sections`` of contents.

    ``stub`` is systemd-stub's version as the image's own .sbat says, 0 where it does not; ``command_line`` and
    ``release`` are the texts of .cmdline and .uname.
    """

    program: bytes
    kernel: bytes
    sections: Mapping[str, bytes]
    stub: int
    command_line: str = ""
    release: str = ""


def read_image(data: bytes) -> KernelImage:
    """Return the image in ``data``; raises `PolicyError` IMAGE_MALFORMED, also for a program without a kernel in it."""
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
