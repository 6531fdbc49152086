# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Lease lets one control plane at a time join or restart its components (ADR 0020, 0029).

    free or expired ──take──▶ held by the identity ──Joined and labelled, or 600 s──▶ free

etcd accepts one new member after the other, and two joins at once would leave both incomplete. The Lease is no security
measure: whether a machine may be a control plane is decided before it takes the turn. The decisions are pure, and
writes use compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import Refusal
from ..reasons import Reason
from .kube_api import IDENTITIES
from .nodes import JOINED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.host import Clock

LEASE = "attested-control-plane-join"
LEASE_NAMESPACE = "kube-system"
LEASE_LIFE = timedelta(seconds=600)
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
LOOK_SECONDS = 15.0
ASK_AGAIN_SECONDS = 20.0
"""A turn usually ends long before its Lease expires."""

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class TurnApi(Protocol):
    """The API calls that turns need; objects are dictionaries as in YAML."""

    def object(self, plural: str, name: str) -> Mapping[str, Any] | None:
        """Return one object of the API group attested-kubernetes.dev as it is now, or None."""

    def node(self, name: str) -> Mapping[str, Any] | None:
        """Return one Node as it is now, or None."""

    def lease(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return one Lease as it is now, or None."""

    def create_lease(self, document: Mapping[str, Any]) -> None:
        """Create a Lease; raises API_CONFLICT if one of this name exists."""

    def replace_lease(self, document: Mapping[str, Any]) -> None:
        """Replace a Lease that is still at the revision in ``document``, else raise API_CONFLICT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A Lease as it was read: its holder (empty: free), times, number of transitions, and revision."""

    holder: str
    renewed: datetime | None
    acquired: str
    changes: int
    revision: str

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Turn:
        """Return the turn of a Lease; without a valid renewTime it blocks no other machine."""
        spec = document.get("spec", {})
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            renewed=_time(str(spec.get("renewTime") or "")),
            acquired=str(spec.get("acquireTime") or ""),
            changes=int(spec.get("leaseTransitions") or 0),
            revision=str(document["metadata"]["resourceVersion"]),
        )

    def left(self, now: datetime) -> timedelta:
        """Return how long the turn still blocks others; a renewTime in the future by a whole life is ignored."""
        if not self.holder or self.renewed is None or self.renewed >= now + LEASE_LIFE:
            return timedelta()
        return max(self.renewed + LEASE_LIFE - now, timedelta())


def take_turn(turn: Turn | None, *, identity: str, now: datetime) -> dict[str, Any]:
    """Return the Lease that gives the turn to ``identity`` (a name); raises CONTROL_PLANE_JOIN_BUSY.

    1. There is no Lease yet: create it.
    2. The identity holds the Lease already: renew it.
    3. Another identity holds the Lease, and it has not expired: raise, with the time until the next attempt.
    4. The Lease is free or expired: take it.
    """
    if turn is None:  # 1
        return _lease(identity, acquired=_shown(now), renewed=now, changes=0)
    if turn.holder == identity:  # 2
        return _lease(identity, acquired=turn.acquired or _shown(now), renewed=now, changes=turn.changes, after=turn)
    left = turn.left(now).total_seconds()
    if left > 0:  # 3
        raise Refusal(
            f"expected that no other control plane joins or restarts, {turn.holder} does and has {left:.0f} s left",
            reason=Reason.CONTROL_PLANE_JOIN_BUSY,
            retry_after_seconds=min(left, ASK_AGAIN_SECONDS),
        )
    return _lease(identity, acquired=_shown(now), renewed=now, changes=turn.changes + 1, after=turn)  # 4


def free_turn(turn: Turn) -> dict[str, Any]:
    """Return the Lease without a holder."""
    return _lease("", acquired="", renewed=None, changes=turn.changes, after=turn)


def has_joined(identity: Mapping[str, Any] | None, node: Mapping[str, Any] | None) -> bool:
    """Return whether the holder has finished: its identity is Joined, and its Node labelled as a control plane."""
    if identity is None or node is None:
        return False
    labels = node["metadata"].get("labels", {})
    return identity.get("status", {}).get("phase") == JOINED and CONTROL_PLANE_LABEL in labels


class JoinTurns:
    """Takes the turn for identities, and frees it after the machine has joined."""

    def __init__(self, api: TurnApi, *, clock: Clock, freed: Callable[[str], None]) -> None:
        """Use ``api``; call ``freed`` with the name of the identity whose turn has ended."""
        self._api = api
        self._clock = clock
        self._freed = freed

    def take(self, identity: str) -> None:
        """Give the turn to ``identity``; raises CONTROL_PLANE_JOIN_BUSY, API_CONFLICT if another write was faster."""
        turn = self._read()
        lease = take_turn(turn, identity=identity, now=self._clock.now())
        write = self._api.create_lease if turn is None else self._api.replace_lease
        write(lease)

    def free(self, identity: str) -> None:
        """End the turn of ``identity`` if it holds the Lease; raises `ApiError`."""
        turn = self._read()
        if turn is not None and turn.holder == identity:
            self._api.replace_lease(_lease("", acquired="", renewed=None, changes=turn.changes, after=turn))

    def run_once(self) -> None:
        """Call `settle` every 15 s for ever; after an error it may be called again."""
        while True:
            self.settle()
            self._clock.sleep(LOOK_SECONDS)

    def settle(self) -> None:
        """Free the turn of a machine that has joined; raises `ApiError`."""
        turn = self._read()
        if turn is None or not turn.holder:
            return
        identity = self._api.object(IDENTITIES, turn.holder)
        if has_joined(identity, self._api.node(identity["spec"]["nodeName"]) if identity else None):
            self._api.replace_lease(free_turn(turn))
            self._freed(turn.holder)

    def _read(self) -> Turn | None:
        document = self._api.lease(LEASE_NAMESPACE, LEASE)
        return None if document is None else Turn.parse(document)


def _lease(
    holder: str, *, acquired: str, renewed: datetime | None, changes: int, after: Turn | None = None
) -> dict[str, Any]:
    """Return the whole Lease without empty fields. ``after``: the turn as it was read, for the compare-and-set."""
    fields = {
        "holderIdentity": holder,
        "acquireTime": acquired,
        "renewTime": _shown(renewed) if renewed else "",
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": LEASE,
            "namespace": LEASE_NAMESPACE,
            **({"resourceVersion": after.revision} if after else {}),
        },
        "spec": {
            **{name: value for name, value in fields.items() if value},
            "leaseDurationSeconds": int(LEASE_LIFE.total_seconds()),
            "leaseTransitions": changes,
        },
    }


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_TIME)


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
