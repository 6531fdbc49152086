# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the logs of one boot prove: the input of assertions, made by `attestation.eventlog` and empty where unproven."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFacts:
    """Statements about a boot that follow from digests in quoted registers; a hint is never among them.

    ``secure_boot``: None where the log does not prove it. ``command_lines``: every kernel command line that was
    measured, none where one of them is not known as text. ``kernel``: SHA-256 of the release in the kernel image's
    section .uname, 32 bytes or none. ``sbat_level``: component to generation, as shim enforced it.
    ``source_signer`` and ``source_version``: fingerprint and version of the site that was measured in front of the
    node lock, empty and 0 where none was.
    """

    secure_boot: bool | None = None
    command_lines: tuple[str, ...] = ()
    firmware_version: str = ""
    kernel: bytes = b""
    sbat_level: Mapping[str, int] = field(default_factory=dict)
    source_signer: str = ""
    source_version: int = 0


def boot_options(command_line: str) -> tuple[str, ...]:
    """Return the words of a kernel command line; blanks within double quotes do not part them (kernel: next_arg)."""
    words, quoted = [""], False
    for letter in command_line:
        quoted ^= letter == '"'
        if letter.isspace() and not quoted:
            words.append("")
        else:
            words[-1] += letter
    return tuple(word for word in words if word)


def given_options(command_line: str) -> tuple[str, ...]:
    """Return the options of a command line without what boot loaders put in front: the name of the kernel's file."""
    words = boot_options(command_line)
    loader = bool(words) and (words[0].startswith(("/", "(")) or words[0].startswith("BOOT_IMAGE="))
    return words[1:] if loader else words
