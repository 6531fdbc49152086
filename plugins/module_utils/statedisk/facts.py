# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies on a disk, as it was found; nothing here reads a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..luks import AREA_BYTES, read_header

if TYPE_CHECKING:
    from ..luks import Header

LUKS_SIGNATURE = "crypto_LUKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature of a file system, a partition table or the like: its type and byte offset, as wipefs names them."""

    type: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """A disk as found; ``begin`` is the copied first `AREA_BYTES`, from which alone the header is read.

    ``device`` is the by-id path, ``node`` the device that it names now. ``blank``: the first 16 MiB and the last MiB
    are zeros. ``users`` name what holds the disk (mount points, mappings), our own mapping excepted; ``mapped`` says
    whether that one is there.
    """

    device: str
    node: str
    size_bytes: int
    sector_bytes: int
    signatures: tuple[Signature, ...]
    blank: bool
    begin: bytes
    users: tuple[str, ...] = ()
    mapped: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing is known to be on it: neither a signature nor a byte that is not zero."""
        return self.blank and not self.signatures

    def contents(self) -> str:
        """Say in words what is on it, for the person who is asked whether that may go."""
        if not self.signatures:
            return "nothing" if self.blank else "data of no known kind"
        return ", ".join(f"{one.type} at {one.offset}" for one in self.signatures)

    def header(self) -> Header | None:
        """Return the header in the copied begin, None where there is no LUKS at all; raises what the reader refuses."""
        if not self.has_luks:
            return None
        return read_header(self.begin[:AREA_BYTES])

    @property
    def has_luks(self) -> bool:
        """Whether one of the two copies of a header, or wipefs, says that there is LUKS of some kind."""
        magics = (self.begin[:6], self.begin[AREA_BYTES // 2 : AREA_BYTES // 2 + 6])
        named = any(one.type == LUKS_SIGNATURE for one in self.signatures)
        return named or magics[0] == b"LUKS\xba\xbe" or magics[1] == b"SKUL\xba\xbe"
