# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a service asks its caller to wait, read from the trailing metadata of a refusal (RESOURCE_EXHAUSTED)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_METADATA = "attested-retry-after-milliseconds"
LONGEST_PAUSE_SECONDS = 60.0
"""What a stranger asks for is believed so far: nobody makes us sleep for a day."""

_DIGITS = 9


def told_pause(trailing: Mapping[str, Any]) -> float:
    """Return the seconds to wait; 0 where nothing is said, or what is said is no number."""
    told = str(trailing.get(RETRY_METADATA, ""))
    if not (told.isascii() and told.isdigit() and len(told) <= _DIGITS):
        return 0.0
    return min(int(told) / 1000, LONGEST_PAUSE_SECONDS)
