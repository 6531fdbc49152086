# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`dcap-qvl` (verification of TDX quotes), guarded, and loaded only to verify a quote."""

from __future__ import annotations

from typing import Any

from . import optional


def dcap_qvl() -> Any:
    """Return the library or its placeholder; it has 6 MB of machine code, so other uses must not load it."""
    return optional("dcap_qvl")
