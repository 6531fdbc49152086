# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A secret for one judged state of one machine. Private to the collection."""

from __future__ import annotations

from .box import BOX_VERSION, OneTimeKey, open_sealed, open_to_key, seal, seal_to_key

__all__ = ["BOX_VERSION", "OneTimeKey", "open_sealed", "open_to_key", "seal", "seal_to_key"]
