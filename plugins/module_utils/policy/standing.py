# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The standing of a node by its last evidence: good, refused, or overdue. Pure."""

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
"""Type of the Node condition that shows the standing of a node."""

OVERDUE_AFTER = timedelta(hours=3)
"""The maximum age of the last good evidence: three times the default interval at which nodes push it."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two control planes may differ; times further in the future are not trusted."""


class Standing(Enum):
    """The standing of a node now.

    NEW: the node has sent no good evidence yet, and it is not overdue. UNHEARD: the node would be overdue, but no
    service could receive evidence for a while, so nothing follows from that.
    """

    FAILED = "failed"
    GOOD = "good"
    NEW = "new"
    OVERDUE = "overdue"
    UNHEARD = "unheard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The standing of a node since a time; ``code`` is the reason code if its evidence was refused."""

    standing: Standing
    since: datetime
    code: str = ""


def judge_standing(
    status: IdentityStatus,
    *,
    known_since: datetime,
    now: datetime,
    overdue_after: timedelta = OVERDUE_AFTER,
    overdue_from: datetime | None = None,
) -> Judgement:
    """Return the standing of the node with an identity's ``status``.

    1. After evidence was refused, the node is FAILED until other evidence is good.
    2. A node without good evidence is measured from ``known_since``, when its Node appeared. So is a node whose last
       good evidence is in the future: a clock is wrong, by mistake or on purpose.
    3. ``overdue_after`` later the node is OVERDUE, or UNHEARD before ``overdue_from``, since no evidence could be
       received until then.
    4. Otherwise the node is GOOD, or NEW without any evidence.
    """
    if status.refusal is not None:
        return Judgement(standing=Standing.FAILED, since=status.refusal.at or known_since, code=status.refusal.code)
    proven = status.attested_at if status.attested_at and status.attested_at <= now + CLOCK_SKEW else None
    due = (proven or known_since) + overdue_after
    if now >= due:
        unheard = overdue_from is not None and now < overdue_from
        return Judgement(standing=Standing.UNHEARD if unheard else Standing.OVERDUE, since=due)
    return Judgement(standing=Standing.GOOD if proven else Standing.NEW, since=proven or known_since)


def require_good_standing(status: IdentityStatus, *, now: datetime, overdue_after: timedelta = OVERDUE_AFTER) -> None:
    """Raise REATTESTATION_FAILED or REATTESTATION_OVERDUE unless the machine's last evidence is good and recent.

    A machine that never sent evidence has nothing to renew, so it passes.
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
    """Return a time in UTC with whole seconds (RFC 3339), for display and the API; ``never`` for None."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else "never"
