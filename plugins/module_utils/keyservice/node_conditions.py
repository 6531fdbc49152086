# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the standing of each Node in Kubernetes: as a condition, a taint, an Event and labels.

The taint is NoSchedule. It keeps new pods from the Node and evicts none. Otherwise an outage of the attestation would
become an outage of all workloads. An admin removes a node at once with `revoke`. The kubelet may not change taints
(NodeRestriction) and merges conditions by type, so both keep what the key service writes.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ApiError
from ..policy.identity import Admission
from ..policy.standing import CONDITION, Standing, judge_standing, shown_time
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from ..core.host import Clock
    from ..policy.identity import IdentityStatus
    from ..policy.standing import Judgement
    from .kube_api import NodeMarker
    from .live_policy import LivePolicy, Registration, RegistrationReader

TAINT = "attested-kubernetes.dev/not-attested"
TAINT_EFFECT = "NoSchedule"

LABELS = tuple(f"attested-kubernetes.dev/{name}" for name in ("attested-at", "posture", "profile"))
"""Labels for schedulers: the hour of the last good evidence, and the posture and the profile that accepted it."""

ROUND_SECONDS = 30.0
_SOON_SECONDS = 1.0
_MAX_MARKS = 20
_MAX_NAME = 200
_MAX_VERSION = 64
_EVENTS_NAMESPACE = "default"
_SOURCE = "attested-key-service"
_STATUS = {Standing.GOOD: "True", Standing.FAILED: "False", Standing.OVERDUE: "Unknown", Standing.NEW: "Unknown"}
_REASON = {
    Standing.GOOD: "EvidenceGood",
    Standing.FAILED: "ReattestationFailed",
    Standing.OVERDUE: "ReattestationOverdue",
    Standing.NEW: "NotYetAttested",
}
_BAD = frozenset({Standing.FAILED, Standing.OVERDUE})
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The changes of one Node, None for no change. ``event`` reports a change to a bad standing, or its end."""

    node_name: str
    revision: str
    taints: tuple[Mapping[str, Any], ...] | None = None
    condition: Mapping[str, Any] | None = None
    event: Mapping[str, Any] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to write."""
        return self.taints is not None or self.condition is not None


def plan_mark(node: Mapping[str, Any], judgement: Judgement, *, now: datetime) -> Mark:
    """Return the changes by which ``node`` shows its standing; an empty mark if it shows it already."""
    name, revision = node["metadata"]["name"], node["metadata"]["resourceVersion"]
    if judgement.standing is Standing.UNHEARD:
        return Mark(node_name=name, revision=revision)
    condition = _condition(node, judgement, now=now)
    return Mark(
        node_name=name,
        revision=revision,
        taints=_taints(node, tainted=judgement.standing in _BAD),
        condition=condition,
        event=_event(node, judgement, now=now) if condition is not None else None,
    )


def _taints(node: Mapping[str, Any], *, tainted: bool) -> tuple[Mapping[str, Any], ...] | None:
    found = node.get("spec", {}).get("taints") or ()
    others = [one for one in found if one["key"] != TAINT]
    ours = [one for one in found if one["key"] == TAINT]
    if tainted == any(one.get("effect") == TAINT_EFFECT for one in ours) and len(ours) == int(tainted):
        return None
    return (*others, *(({"key": TAINT, "effect": TAINT_EFFECT},) if tainted else ()))


def _condition(node: Mapping[str, Any], judgement: Judgement, *, now: datetime) -> dict[str, Any] | None:
    was = _found(node)
    status, moment = _STATUS[judgement.standing], shown_time(now)
    wanted = {
        "type": CONDITION,
        "status": status,
        "reason": _REASON[judgement.standing],
        "message": _message(node["metadata"]["name"], judgement),
    }
    if all(was.get(name) == value for name, value in wanted.items()):
        return None
    since = was.get("lastTransitionTime") if was.get("status") == status else None
    return {**wanted, "lastHeartbeatTime": moment, "lastTransitionTime": since or moment}


def plan_labels(node: Mapping[str, Any], status: IdentityStatus, judgement: Judgement) -> dict[str, str | None]:
    """Return the labels of ``node`` to change, None to remove one; only a node in good standing has these labels.

    Values that are not valid in a label, such as a long profile name, are left out.
    """
    if judgement.standing is Standing.UNHEARD:
        return {}
    wanted: dict[str, str] = {}
    if judgement.standing is Standing.GOOD and status.attested_at is not None:
        hour = f"{status.attested_at.astimezone(UTC):%Y-%m-%dT%H}"
        values = zip(LABELS, (hour, status.posture, status.profile), strict=True)
        wanted = {name: value for name, value in values if _LABEL_VALUE.fullmatch(value)}
    found = node["metadata"].get("labels") or {}
    return {name: wanted.get(name) for name in LABELS if found.get(name) != wanted.get(name)}


def _found(node: Mapping[str, Any], kind: str = CONDITION) -> Mapping[str, Any]:
    conditions = node.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def _ready(node: Mapping[str, Any]) -> float:
    return float(_found(node, "Ready").get("status") == "True")


def _kubelet_version(node: Mapping[str, Any]) -> str:
    version = node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
    return str(version).removeprefix("v")[:_MAX_VERSION]


def _message(name: str, judgement: Judgement) -> str:
    """Return a message that is the same as long as nothing changes, because each new message is a write."""
    since = shown_time(judgement.since)
    if judgement.standing is Standing.FAILED:
        return (
            f"evidence was refused at {since} with {judgement.code}; next: attested explain {judgement.code}, then "
            f"ansible-playbook attested.kubernetes.verify --limit {name}"
        )
    if judgement.standing is Standing.OVERDUE:
        return f"evidence is overdue since {since}; next, on {name}: systemctl start attested-reattest"
    if judgement.standing is Standing.NEW:
        return f"nothing was proven yet; by itself within the interval, or on {name}: systemctl start attested-reattest"
    return "the last evidence was good; next: nothing"


def _event(node: Mapping[str, Any], judgement: Judgement, *, now: datetime) -> dict[str, Any] | None:
    """Return the Event for a bad standing or its end: one object for each node and reason."""
    metadata, reason = node["metadata"], _REASON[judgement.standing]
    was_bad = _found(node).get("reason") in {_REASON[standing] for standing in _BAD}
    if judgement.standing not in _BAD and not was_bad:
        return None
    moment = shown_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:_MAX_NAME]}.{reason.lower()}", "namespace": _EVENTS_NAMESPACE},
        "type": "Warning" if judgement.standing in _BAD else "Normal",
        "reason": reason,
        "message": _message(metadata["name"], judgement),
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": _SOURCE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One Node with its registration and its standing."""

    node: Mapping[str, Any]
    registration: Registration
    judgement: Judgement

    @property
    def name(self) -> str:
        """The Node's name."""
        return str(self.node["metadata"]["name"])

    def labels(self) -> dict[str, str | None]:
        """Return the labels to change."""
        return plan_labels(self.node, self.registration.identity.status, self.judgement)


class StandingWatcher:
    """Updates the marks of all Nodes; `run_once` needs a thread of its own, `wake` may be called from any thread."""

    def __init__(
        self,
        marker: NodeMarker,
        policy: LivePolicy,
        *,
        cached: RegistrationReader,
        clock: Clock,
        overdue_after: timedelta,
        grace: timedelta,
        marked: Callable[[str, str], None],
    ) -> None:
        """Judge by ``overdue_after``; within ``grace`` from now no node becomes overdue, as none could push before.

        A round over all Nodes uses the cached identities of ``cached``; the identities of `wake` are read from
        ``policy``. Each change calls ``marked`` with the node's name and standing.
        """
        self._marker = marker
        self._policy = policy
        self._cached = cached
        self._clock = clock
        self._overdue_after = overdue_after
        self._overdue_from = clock.now() + grace
        self._marked = marked
        self._woken = threading.Condition()
        self._names: dict[str, None] = {}
        self.standings: dict[str, Standing] = {}
        self.attested: dict[str, float] = {}
        """When the evidence of each node was last good, in Unix seconds; 0: never."""
        self.ready: dict[str, float] = {}
        """Whether the condition Ready of each Node is True: 1 or 0."""
        self.versions: dict[str, str] = {}
        """The version of each node's kubelet, without the leading v."""
        self.looked_at = 0.0
        """When all Nodes were last read, in Unix seconds."""

    @property
    def bad(self) -> int:
        """How many nodes failed or are overdue, as of the last round."""
        return sum(standing in _BAD for standing in self.standings.values())

    def wake(self, name: str) -> None:
        """Request a check of the Node of the identity with this object name soon."""
        with self._woken:
            self._names[name] = None
            self._woken.notify()

    def run_once(self, pause_seconds: float = ROUND_SECONDS) -> None:
        """Check every Node once, then until ``pause_seconds`` are over those that are left or woken.

        Raises `ApiError`.
        """
        self.look()
        ends = self._clock.monotonic() + pause_seconds
        self._clock.sleep(_SOON_SECONDS)
        while names := self._taken(ends):
            self.look_at(names)
            self._clock.sleep(_SOON_SECONDS)

    def _taken(self, ends: float) -> tuple[str, ...]:
        """Wait for names until ``ends`` and return up to `_MAX_MARKS` of them; none after that time."""
        with self._woken:
            self._woken.wait_for(lambda: self._names, max(0.0, ends - self._clock.monotonic()))
            if self._clock.monotonic() >= ends:
                return ()
            names = tuple(self._names)[:_MAX_MARKS]
            for name in names:
                del self._names[name]
            return names

    def look(self) -> bool:
        """Check all Nodes and write marks of a bounded number; return whether some are left for the next check."""
        now = self._clock.now()
        judged = self._judged(self._registrations(), self._marker.nodes(), now)
        self._show(judged)
        self.looked_at = now.timestamp()
        return self._mark(judged, now)

    def look_at(self, names: Iterable[str]) -> bool:
        """Check only the Nodes of these identities, each read from the API; return as `look`."""
        now = self._clock.now()
        found = [one for name in names for one in self._policy.registrations_called(name)]
        nodes = [node for one in found if (node := self._marker.node(one.identity.node_name)) is not None]
        judged = self._judged(found, nodes, now)
        self._show(judged, keep_others=True)
        return self._mark(judged, now)

    def _registrations(self) -> tuple[Registration, ...]:
        with suppress(ApiError):
            return self._cached.registrations()
        return self._policy.registrations()

    def _judged(
        self, registrations: Iterable[Registration], nodes: Iterable[Mapping[str, Any]], now: datetime
    ) -> list[_Judged]:
        registered = _by_node(registrations)
        return [
            _Judged(node=node, registration=one, judgement=self._judge(one, node, now))
            for node in nodes
            if (one := registered.get(node["metadata"]["name"])) is not None
        ]

    def _show(self, judged: Sequence[_Judged], *, keep_others: bool = False) -> None:
        """Set the public attributes for these Nodes, with ``keep_others`` keeping those of all other Nodes.

        The dictionaries are replaced as a whole, because other threads read them.
        """
        standings, attested, ready, versions = (
            (self.standings, self.attested, self.ready, self.versions) if keep_others else ({}, {}, {}, {})
        )
        self.standings = {**standings, **{one.name: one.judgement.standing for one in judged}}
        self.attested = {**attested, **{one.name: _attested(one.registration) for one in judged}}
        self.ready = {**ready, **{one.name: _ready(one.node) for one in judged}}
        self.versions = {**versions, **{one.name: _kubelet_version(one.node) for one in judged}}

    def _mark(self, judged: Sequence[_Judged], now: datetime) -> bool:
        """Write marks before labels, so labels never delay a taint; wake this watcher for the Nodes that are left."""
        needed = [(one, mark) for one in judged if (mark := plan_mark(one.node, one.judgement, now=now)).is_needed]
        labels = [(one, change) for one in judged if (change := one.labels())]
        tried = [(one, self._try(mark, one.judgement)) for one, mark in needed[:_MAX_MARKS]]
        left = [*needed[_MAX_MARKS:], *labels[_MAX_MARKS:], *((one, errors) for one, errors in tried if errors)]
        for one, _unused in left:
            self.wake(one.registration.identity.name)
        for error in (error for _unused, errors in tried for error in errors):
            if error.reason is not Reason.API_CONFLICT:
                raise error
        for one, change in labels[:_MAX_MARKS]:
            self._marker.set_labels(one.name, change)
        return bool(left)

    def _judge(self, registration: Registration, node: Mapping[str, Any], now: datetime) -> Judgement:
        return judge_standing(
            registration.identity.status,
            known_since=datetime.fromisoformat(node["metadata"]["creationTimestamp"]),
            now=now,
            overdue_after=self._overdue_after,
            overdue_from=self._overdue_from,
        )

    def _try(self, mark: Mark, judgement: Judgement) -> tuple[ApiError, ...]:
        """Write a mark and return its error, if any, so that an error at one Node does not stop the others."""
        try:
            self._apply(mark, judgement)
        except ApiError as error:
            return (error,)
        return ()

    def _apply(self, mark: Mark, judgement: Judgement) -> None:
        """Write a mark: the taint first, and the condition last, so that an interrupted write is repeated."""
        if mark.taints is not None:
            self._marker.set_taints(mark.node_name, mark.taints, revision=mark.revision)
        if mark.event is not None:
            self._marker.record_event(mark.event)
        if mark.condition is not None:
            self._marker.set_condition(mark.node_name, mark.condition)
        self._marked(mark.node_name, judgement.standing.value)


def _attested(registration: Registration) -> float:
    moment = registration.identity.status.attested_at
    return moment.timestamp() if moment else 0.0


def _by_node(registrations: Iterable[Registration]) -> dict[str, Registration]:
    """Return the approved identities by the name of their node."""
    approved = (one for one in registrations if one.identity.admission is Admission.APPROVED)
    return {one.identity.node_name: one for one in approved}
