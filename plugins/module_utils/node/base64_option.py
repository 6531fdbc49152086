# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that the admin's side hands to a module on the node."""

from __future__ import annotations

import base64
import binascii

from ..errors import SiteError
from ..reasons import Reason


def decode(text: str, name: str) -> bytes:
    """Return the bytes of the option ``name``; raises OPTION_INVALID."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SiteError(f"expected base64 in {name}, got something else", reason=Reason.OPTION_INVALID) from error
