# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report a refusal after the decision: as a join attempt, in the queue of unknown machines, in a node's identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..reasons import Coarse, Reason
from .join_attempts import Attempt
from .pending import Arrival

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ..errors import AttestedError
    from .attestation_state import RefusalKeeper
    from .join_attempts import AttemptSink
    from .pending import WaitingQueue

_ATTEMPTED = frozenset({Coarse.INVALID, Coarse.REFUSED})


class RefusalReporter:
    """Passes refusals to the parts that write them."""

    def __init__(
        self, attempts: AttemptSink, *, waiting: WaitingQueue | None = None, keeper: RefusalKeeper | None = None
    ) -> None:
        """Report refusals to ``attempts``, and unknown machines to ``waiting`` if the site queues them.

        Both only queue the report. ``keeper`` writes the refusal of a node at once, because renewals depend on it.
        """
        self._attempts = attempts
        self._waiting = waiting
        self._keeper = keeper

    def report(self, error: AttestedError, fields: Mapping[str, object], *, now: datetime) -> None:
        """Report a refusal with the ``fields`` of its log line; faults of the cluster are not join attempts."""
        known = {name: str(value) for name, value in fields.items()}
        if error.reason.value.coarse in _ATTEMPTED:
            self._attempts.note(_attempt(error, known, now=now))
        if self._keeper is not None and "proven" in known:
            self._keeper.note(error, ek_sha256=known["ek"], now=now)
        if self._waiting is not None and error.reason is Reason.IDENTITY_UNKNOWN and "proven" in known:
            arrival = Arrival(
                ek_sha256=known["ek"], claims=known.get("claims", ""), at=now, source=known.get("source", "")
            )
            self._waiting.note(arrival)


def _attempt(error: AttestedError, fields: Mapping[str, str], *, now: datetime) -> Attempt:
    """Return the attempt; a machine that did not prove its key counts as a stranger, whatever it claims."""
    proven = "proven" in fields
    return Attempt(
        reason=error.code,
        message=error.message,
        at=now,
        correlation_id=fields.get("correlation_id", ""),
        ek_sha256=fields.get("ek", "") if proven else "",
        node_name=fields.get("node", "") if proven else "",
        identity=fields.get("identity", "") if proven else "",
    )
