# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that must not show: no content in a repr, a comparison in constant time, no pickling."""

from __future__ import annotations

import hmac
from typing import NoReturn


class SecretBytes:
    """A secret value of any length; `reveal` is the one way to its bytes."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        """Hold ``value``."""
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """Return the bytes, for the one call that needs them."""
        return self._value

    def __len__(self) -> int:
        """Return the length in bytes, which is no secret."""
        return len(self._value)

    def __repr__(self) -> str:
        """Return the type's name and nothing of the content."""
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        """Compare in constant time; another type is never equal."""
        if type(other) is not type(self):
            return NotImplemented
        return hmac.compare_digest(self._value, other.reveal())

    __hash__ = None  # type: ignore[assignment]  # a secret is no key of a table

    def __reduce__(self) -> NoReturn:
        """Refuse: a pickle would carry the content somewhere else."""
        message = f"{type(self).__name__} cannot be pickled"
        raise TypeError(message)


class DiskKey(SecretBytes):
    """The key of one node's state disk, 32 bytes."""

    __slots__ = ()


class MeasurementSecret(SecretBytes):
    """What the cluster id is derived from, 32 bytes; one for a cluster."""

    __slots__ = ()
