# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of etcd, and the decision whether one of them can be removed.

etcd accepts writes while more than half of its voting members are healthy. A member that is lost for good still counts
as a voter. It may be removed if the healthy members are a majority before and after the removal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ..errors import EtcdError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member as the other members list it. A learner has no vote.

    ``name`` is empty until the member has started once. ``healthy``: the member answered and can read from a majority;
    without a majority no member is healthy.
    """

    member_id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    is_learner: bool
    healthy: bool

    @property
    def shown(self) -> str:
        """The name of the member in messages."""
        return self.name or f"a member that never started ({', '.join(self.peer_urls)})"

    @property
    def problem(self) -> str:
        """Return why the member cannot replace another member that stops; empty if it can."""
        if not self.client_urls:
            return "has not started"
        if self.is_learner:
            return "is a learner"
        return "" if self.healthy else "is not healthy"

    def as_result(self) -> dict[str, Any]:
        """Return plain values for a module's result; the id in hexadecimal digits, as etcdctl prints it."""
        return {
            "id": f"{self.member_id:x}",
            "name": self.name,
            "peer_urls": list(self.peer_urls),
            "client_urls": list(self.client_urls),
            "learner": self.is_learner,
            "healthy": self.healthy,
        }


class EtcdApi(Protocol):
    """Reads and removes members of etcd."""

    def members(self) -> tuple[Member, ...]:
        """Return all members with the health of each; raises ETCD_UNREACHABLE, ETCD_REFUSED."""

    def remove(self, member: Member) -> None:
        """Remove a member.

        Raises ETCD_UNREACHABLE, and ETCD_REFUSED with a retry time if a retry can succeed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlan:
    """The member to remove (None if no member has the name), and all members before the removal."""

    member: Member | None
    members: tuple[Member, ...]

    def __bool__(self) -> bool:
        """Return whether there is a member to remove."""
        return self.member is not None

    @property
    def left(self) -> tuple[Member, ...]:
        """The members after the removal."""
        return tuple(one for one in self.members if one != self.member)


def majority(voters: int) -> int:
    """Return how many of ``voters`` must be healthy so that etcd accepts writes."""
    return voters // 2 + 1


def voters_of(members: Sequence[Member]) -> tuple[Member, ...]:
    """Return the members that have a vote."""
    return tuple(one for one in members if not one.is_learner)


def plan_removal(members: Sequence[Member], *, name: str, address: str = "") -> RemovalPlan:
    """Return the plan to remove the member ``name``; raises `EtcdError`. Pure.

    A member that never started has no name yet and is identified by ``address``, the host in its peer URL.

    1. If no member has the name, there is nothing to do.
    2. If several members match, the removal is refused: ETCD_MEMBER_AMBIGUOUS.
    3. A learner has no vote, so it may always be removed.
    4. The last voting member stays: ETCD_LAST_MEMBER.
    5. The healthy voters must be a majority now, or etcd cannot change its members: ETCD_QUORUM_LOST.
    6. The healthy voters must be a majority after the removal: ETCD_QUORUM_AT_RISK.
    """
    found = [one for one in members if _is_meant(one, name=name, address=address)]
    if not found:  # 1
        return RemovalPlan(member=None, members=tuple(members))
    if len(found) > 1:  # 2
        shown = ", ".join(f"{one.member_id:x}" for one in found)
        raise EtcdError(
            f"expected one member of etcd that is {name}, found {shown}", reason=Reason.ETCD_MEMBER_AMBIGUOUS
        )
    plan = RemovalPlan(member=found[0], members=tuple(members))
    if not found[0].is_learner:  # 3
        _require_majorities(plan, name)
    return plan


def _require_majorities(plan: RemovalPlan, name: str) -> None:
    voters, left = voters_of(plan.members), voters_of(plan.left)
    if not left:  # 4
        raise EtcdError(
            f"expected another voting member of etcd, {name} is the only one", reason=Reason.ETCD_LAST_MEMBER
        )
    if len(_healthy(voters)) < majority(len(voters)):  # 5
        raise EtcdError(
            f"expected {majority(len(voters))} of {len(voters)} voting members to be healthy, {_health(voters)}",
            reason=Reason.ETCD_QUORUM_LOST,
        )
    if len(_healthy(left)) < majority(len(left)):  # 6
        raise EtcdError(
            f"expected {majority(len(left))} of the {len(left)} voting members that stay without {name} to be "
            f"healthy, {_health(left)}",
            reason=Reason.ETCD_QUORUM_AT_RISK,
        )


def _is_meant(member: Member, *, name: str, address: str) -> bool:
    if member.name:
        return member.name == name
    return bool(address) and any(urlsplit(url).hostname == address for url in member.peer_urls)


def _healthy(members: Sequence[Member]) -> tuple[Member, ...]:
    return tuple(one for one in members if one.healthy)


def _health(voters: Sequence[Member]) -> str:
    others = ", ".join(sorted(one.shown for one in voters if not one.healthy)) or "none"
    return f"{len(_healthy(voters))} are; not healthy: {others}"


# Remove a member: decide from the current members, remove, and check the members again.

_SETTLED_SECONDS = 30.0
"""etcd refuses a removal until its members have been connected for five seconds."""


def remove_member(api: EtcdApi, *, name: str, address: str = "", check_mode: bool = False, clock: Clock) -> RemovalPlan:
    """Remove the member ``name`` and return the plan; raises as `plan_removal` and the API do.

    If etcd refuses for the moment, the removal is retried for half a minute. Afterwards the members are read again.
    Raises ETCD_REFUSED if the member is still listed.
    """
    plan = plan_removal(api.members(), name=name, address=address)
    if plan.member is None or check_mode:
        return plan
    _remove(api, plan.member, clock)
    if plan.member.member_id in {one.member_id for one in api.members()}:
        raise EtcdError(f"expected etcd without {plan.member.shown}, it is still a member", reason=Reason.ETCD_REFUSED)
    return plan


def _remove(api: EtcdApi, member: Member, clock: Clock) -> None:
    deadline = clock.monotonic() + _SETTLED_SECONDS
    while True:
        try:
            api.remove(member)
        except EtcdError as error:
            if not error.retry_after_seconds or clock.monotonic() >= deadline:
                raise
            clock.sleep(error.retry_after_seconds)
        else:
            return
