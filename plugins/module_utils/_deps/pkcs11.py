# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python-pkcs11`, guarded, and loaded only to open a kit with a token."""

from __future__ import annotations

from typing import Any

from . import optional, require


def pkcs11() -> Any:
    """Return the library; raises DEPENDENCY_MISSING at once, since callers name its exceptions in ``except``."""
    require("pkcs11")
    return optional("pkcs11")


def pkcs11_errors() -> Any:
    """Return the library's exceptions; raises DEPENDENCY_MISSING."""
    require("pkcs11")
    return optional("pkcs11.exceptions")
