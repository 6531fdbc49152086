# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pyOpenSSL, guarded; only the package `transport` needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import optional

if TYPE_CHECKING:
    from OpenSSL import SSL
else:
    SSL = optional("OpenSSL.SSL")

__all__ = ["SSL"]
