# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A passphrase that a person types: on any keyboard, and long enough."""

from __future__ import annotations

from ..errors import SiteError
from ..keys import SecretBytes
from ..reasons import Reason

MIN_PASSPHRASE = 12
_MAX_PASSPHRASE = 256
_PRINTABLE = range(32, 127)


def require_passphrase(data: bytes) -> SecretBytes:
    """Return ``data`` without the end of its line; raises PASSPHRASE_UNUSABLE.

    Only printable ASCII: another keyboard, or another normal form of the same letter, must not lock its owner out.
    """
    text = data.removesuffix(b"\n").removesuffix(b"\r")
    if not all(byte in _PRINTABLE for byte in text):
        raise _unusable("printable ASCII characters alone")
    if not MIN_PASSPHRASE <= len(text) <= _MAX_PASSPHRASE:
        raise _unusable(f"{MIN_PASSPHRASE} to {_MAX_PASSPHRASE} characters")
    return SecretBytes(text)


def _unusable(expected: str) -> SiteError:
    return SiteError(f"expected a passphrase of {expected}", reason=Reason.PASSPHRASE_UNUSABLE)
