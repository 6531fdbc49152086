# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`pyrage` (the file format age), guarded, and loaded only to encrypt or decrypt a kit or a backup."""

from __future__ import annotations

from typing import Any

from . import optional, require


def age() -> Any:
    """Return the library; raises DEPENDENCY_MISSING at once, since callers name its exceptions in ``except``."""
    require("pyrage")
    return optional("pyrage")
