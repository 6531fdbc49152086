# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node stands by what it proved last: in good standing, refused, or overdue. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason

if TYPE_CHECKING:
    from .identity import IdentityStatus

CONDITION = "Attested"
"""Type of the Node condition that tells how a node stands."""

OVERDUE_AFTER = timedelta(hours=3)
"""How old the last good evidence may be: three of the default intervals at which nodes push it."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two control planes may differ; a time further ahead is nobody's word."""


class Standing(Enum):
    """What is known of a node now.

    NEW: nothing was proven yet, and it is not overdue either. UNHEARD: it would be overdue, but for a while there was
    nobody to push to; nothing follows from that, neither for it nor against it.
    """

    FAILED = "failed"
    GOOD = "good"
    NEW = "new"
    OVERDUE = "overdue"
    UNHEARD = "unheard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How a node stands, and since when; ``code`` is what its evidence was refused with, where it was."""

    standing: Standing
    since: datetime
    code: str = ""


def judge_standing(
    status: IdentityStatus,
    *,
    known_since: datetime,
    now: datetime,
    overdue_after: timedelta = OVERDUE_AFTER,
    heard_from: datetime | None = None,
) -> Judgement:
    """Return how the node of an identity's ``status`` stands.

    1. Evidence that was refused weighs until other evidence is good: FAILED.
    2. Who proved nothing yet is measured from ``known_since``, when its Node appeared. So is one whose last good
       evidence is of the future: clocks are set wrong, by mistake or on purpose.
    3. ``overdue_after`` later it is OVERDUE; before ``heard_from`` nobody is, since nobody could be heard (UNHEARD).
    4. Otherwise it is GOOD, or NEW without any evidence.
    """
    if status.refusal is not None:
        return Judgement(standing=Standing.FAILED, since=status.refusal.at or known_since, code=status.refusal.code)
    proven = status.attested_at if status.attested_at and status.attested_at <= now + CLOCK_SKEW else None
    due = (proven or known_since) + overdue_after
    if now >= due:
        unheard = heard_from is not None and now < heard_from
        return Judgement(standing=Standing.UNHEARD if unheard else Standing.OVERDUE, since=due)
    return Judgement(standing=Standing.GOOD if proven else Standing.NEW, since=proven or known_since)


def require_good_standing(status: IdentityStatus, *, now: datetime, overdue_after: timedelta = OVERDUE_AFTER) -> None:
    """Raise REATTESTATION_FAILED or REATTESTATION_OVERDUE unless the machine's evidence is in order.

    A machine that never gave any has nothing to renew, so nothing is said of it here.
    """
    judgement = judge_standing(status, known_since=now, now=now, overdue_after=overdue_after)
    if judgement.standing is Standing.FAILED:
        raise PolicyError(
            f"expected a machine whose last evidence was good, it was refused at {shown_time(judgement.since)} with "
            f"{judgement.code or 'no reason'}",
            reason=Reason.REATTESTATION_FAILED,
        )
    if judgement.standing is Standing.OVERDUE or (judgement.standing is Standing.NEW and status.attested_at):
        raise PolicyError(
            f"expected evidence that is at most {overdue_after} old, got the last at {shown_time(status.attested_at)}",
            reason=Reason.REATTESTATION_OVERDUE,
        )


def shown_time(moment: datetime | None) -> str:
    """Return a time as people and the API read it, to the second, in UTC; ``never`` for None."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else "never"
