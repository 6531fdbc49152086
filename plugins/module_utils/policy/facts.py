# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the logs of one boot prove: the input of assertions, made by `attestation.eventlog` and empty where unproven."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Loader(Enum):
    """Who measures the command line of a boot; which one it was follows from the programs that PCR 4 names."""

    GRUB = "grub"
    """GRUB: its commands into PCR 8, every file that it reads into PCR 9."""
    IMAGE = "image"
    """The stub of a unified kernel image: its sections into PCR 11; the kernel in it then into PCR 9."""
    KERNEL = "kernel"
    """A kernel that firmware starts itself, or systemd-boot: its command line and initrd into PCR 9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFacts:
    """Statements about a boot that follow from digests in quoted registers; a hint is never among them.

    What anybody may have measured where a loader did not run is told by loader: ``command_lines`` are all kernel
    command lines that GRUB, or else the kernel, measured (without the name of the kernel's file; nothing where one of
    them is not known as text), and ``kernel`` is of IMAGE alone. They count for a profile that says which loader its
    PCR 4 names.

    ``secure_boot``: None where the log does not prove it. ``kernel``: SHA-256 of the release in the kernel image's
    section .uname, 32 bytes or none. ``sbat_level``: component to generation, as shim enforced it.
    ``source_signer`` and ``source_version``: fingerprint and version of the site that was measured in front of the
    node lock, empty and 0 where none was, ``node_config`` the SHA-256 (hex) of the node.yml that it says.
    ``loader``: whose traces there are; ``alone``: firmware started one signed image, and nothing else. Who rules the
    machine can leave traces too, so both are for learning from a machine that is trusted then, and no decision looks at
    them.
    """

    secure_boot: bool | None = None
    command_lines: Mapping[Loader, tuple[str, ...]] = field(default_factory=dict)
    firmware_version: str = ""
    kernel: bytes = b""
    sbat_level: Mapping[str, int] = field(default_factory=dict)
    source_signer: str = ""
    source_version: int = 0
    node_config: str = ""
    loader: Loader | None = None
    alone: bool = False

    def lines_by(self, loader: Loader | None) -> tuple[str, ...]:
        """Return the command lines that ``loader`` measured; none where nobody says who measured."""
        return next((lines for by, lines in self.command_lines.items() if by is loader), ())


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


def is_plain(command_line: str) -> bool:
    """Whether the kernel reads the line as it is shown here: it takes byte 0xA0 for a blank and stops at a newline."""
    return command_line.isascii() and command_line.isprintable()
