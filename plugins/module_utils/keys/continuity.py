# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A TPM counts its resets, its restarts and its time, and none of them backwards: how two quotes of one AK may differ.

The attestation key lives in the endorsement hierarchy, so its quotes show the true counters (TPM 2.0 part 1, "Timing
components"). A power cycle raises the reset count; after a sudden one the clock may be a little lower than before, so
it is compared within one reset only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from ..policy import TpmRecord


def check_continuity(last: TpmRecord | None, now: TpmRecord, *, locked: bool) -> bool:
    """Return whether the machine was rebooted since ``last``, the TPM as its last ticket saw it; None before the first.

    Raises `Refusal` TPM_ROLLED_BACK where a counter, or the clock within one reset, is lower than it was, and
    NODELOCK_NO_TICKET where the machine was rebooted and is locked: since a boot begins unlocked and the lock is taken
    with a ticket, a lock in a boot without one is somebody else's work.
    """
    if last is None:
        return False
    if _position(now) < _position(last) or (now.reset_count == last.reset_count and now.clock < last.clock):
        raise Refusal(f"expected a TPM at least at {_shown(last)}, got {_shown(now)}", reason=Reason.TPM_ROLLED_BACK)
    rebooted = now.reset_count != last.reset_count
    if rebooted and locked:
        raise Refusal(
            f"expected an unlocked machine after reset {now.reset_count} (the last ticket was given at reset "
            f"{last.reset_count}), got a locked one",
            reason=Reason.NODELOCK_NO_TICKET,
        )
    return rebooted


def _position(record: TpmRecord) -> tuple[int, int]:
    return record.reset_count, record.restart_count


def _shown(record: TpmRecord) -> str:
    return f"reset {record.reset_count}, restart {record.restart_count}, clock {record.clock} ms"
