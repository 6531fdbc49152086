# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Big-endian reader and writer of TPM structures; the reader is bounded and never goes past its end."""

from __future__ import annotations

from ..errors import TpmError
from ..reasons import Reason


def malformed(expected: str, got: str) -> TpmError:
    """Return the one error for bytes that are not the structure they should be."""
    return TpmError(f"expected {expected}, got {got}", reason=Reason.TPM_MALFORMED)


class Reader:
    """Reads a structure from bytes, front to back.

    Every method raises `TpmError` TPM_MALFORMED when the bytes end too early or a size exceeds its limit.
    """

    __slots__ = ("_data", "_offset", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        """Start at the first byte of ``data``; ``what`` names the structure in errors."""
        self._data = data
        self._offset = 0
        self._what = what

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return len(self._data) - self._offset

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size > self.left:
            raise malformed(f"{size} more bytes in {self._what} at offset {self._offset}", f"{self.left}")
        start = self._offset
        self._offset += size
        return self._data[start : self._offset]

    def number(self, size: int) -> int:
        """Return the next unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def u8(self) -> int:
        """Return the next UINT8."""
        return self.number(1)

    def u16(self) -> int:
        """Return the next UINT16."""
        return self.number(2)

    def u32(self) -> int:
        """Return the next UINT32."""
        return self.number(4)

    def u64(self) -> int:
        """Return the next UINT64."""
        return self.number(8)

    def sized(self, limit: int) -> bytes:
        """Return the content of the next TPM2B, at most ``limit`` bytes."""
        size = self.u16()
        if size > limit:
            raise malformed(f"at most {limit} bytes in a field of {self._what}", f"{size}")
        return self.take(size)

    def count(self, limit: int) -> int:
        """Return the next list length (UINT32), at most ``limit``."""
        count = self.u32()
        if count > limit:
            raise malformed(f"at most {limit} elements in a list of {self._what}", f"{count}")
        return count

    def rest(self) -> bytes:
        """Return everything that is left."""
        return self.take(self.left)

    def end(self) -> None:
        """Refuse bytes behind the structure."""
        if self.left:
            raise malformed(f"the end of {self._what}", f"{self.left} more bytes")


def u8(value: int) -> bytes:
    """Return a UINT8."""
    return value.to_bytes(1, "big")


def u16(value: int) -> bytes:
    """Return a UINT16."""
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    """Return a UINT32."""
    return value.to_bytes(4, "big")


def u64(value: int) -> bytes:
    """Return a UINT64."""
    return value.to_bytes(8, "big")


def sized(data: bytes) -> bytes:
    """Return ``data`` as a TPM2B: its length in two bytes, then itself."""
    return u16(len(data)) + data
