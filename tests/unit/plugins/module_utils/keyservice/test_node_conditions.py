# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Node shows of its standing: decided from the Node as it is, written once, and after trouble again."""

from __future__ import annotations

import copy
import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import (
    LivePolicy,
    RegistrationReader,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.node_conditions import (
    LABELS,
    TAINT,
    StandingWatcher,
    plan_labels,
    plan_mark,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import IdentityStatus
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.standing import (
    CONDITION,
    Judgement,
    Standing,
    shown_time,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
OURS = {"key": TAINT, "effect": "NoSchedule"}
OTHER = {"key": "site.example/keep", "effect": "NoExecute"}


def node(name: str = "w-1", *, taints: Any = None, conditions: Any = None) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": shown_time(NOW - 9 * HOUR),
        },
        "spec": {} if taints is None else {"taints": taints},
        "status": {} if conditions is None else {"conditions": conditions},
    }


def judged(standing: Standing, code: str = "") -> Judgement:
    return Judgement(standing=standing, since=NOW - HOUR, code=code)


def shown(found: dict[str, Any], mark: Any) -> dict[str, Any]:
    """Return the Node after a mark was written."""
    made = copy.deepcopy(found)
    if mark.taints is not None:
        made["spec"]["taints"] = list(mark.taints)
    if mark.condition is not None:
        others = [one for one in made["status"].get("conditions", ()) if one["type"] != CONDITION]
        made["status"]["conditions"] = [*others, dict(mark.condition)]
    return made


@pytest.mark.parametrize(
    ("standing", "status", "reason", "tainted", "event"),
    [
        pytest.param(Standing.GOOD, "True", "EvidenceGood", False, None, id="a good node"),
        pytest.param(Standing.NEW, "Unknown", "NotYetAttested", False, None, id="a new one"),
        pytest.param(Standing.FAILED, "False", "ReattestationFailed", True, "Warning", id="one that was refused"),
        pytest.param(Standing.OVERDUE, "Unknown", "ReattestationOverdue", True, "Warning", id="one that is overdue"),
    ],
)
def test_a_node_without_marks_gets_them(
    standing: Standing, status: str, reason: str, tainted: bool, event: str | None
) -> None:
    mark = plan_mark(node(taints=[OTHER]), judged(standing, "PCR_MISMATCH"), now=NOW)
    assert mark.condition is not None
    assert (mark.condition["status"], mark.condition["reason"]) == (status, reason)
    assert mark.taints == ((OTHER, OURS) if tainted else None)
    assert (mark.event or {}).get("type") == event
    again = plan_mark(shown(node(taints=[OTHER]), mark), judged(standing, "PCR_MISMATCH"), now=NOW + HOUR)
    assert not again.is_needed
    assert again.event is None


@pytest.mark.parametrize(
    ("standing", "next_command"),
    [
        pytest.param(Standing.FAILED, "attested explain PCR_MISMATCH", id="refused"),
        pytest.param(Standing.OVERDUE, "on w-1: systemctl start attested-reattest", id="overdue"),
        pytest.param(Standing.NEW, "on w-1: systemctl start attested-reattest", id="new"),
        pytest.param(Standing.GOOD, "next: nothing", id="good"),
    ],
)
def test_a_message_is_one_line_with_what_to_do(standing: Standing, next_command: str) -> None:
    condition = plan_mark(node(), judged(standing, "PCR_MISMATCH"), now=NOW).condition
    assert condition is not None
    assert next_command in condition["message"]
    assert "\n" not in condition["message"]


def test_good_evidence_takes_the_taint_away_and_says_so_once() -> None:
    bad = shown(node(taints=[OTHER]), plan_mark(node(taints=[OTHER]), judged(Standing.OVERDUE), now=NOW - HOUR))
    mark = plan_mark(bad, judged(Standing.GOOD), now=NOW)
    assert mark.taints == (OTHER,)
    assert mark.condition is not None
    assert mark.condition["lastTransitionTime"] == shown_time(NOW)
    assert mark.event is not None
    assert (mark.event["type"], mark.event["reason"]) == ("Normal", "EvidenceGood")
    assert mark.event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "w-1", "uid": "uid-w-1"}


def test_another_reason_is_told_and_the_time_of_the_change_stays() -> None:
    overdue = shown(node(), plan_mark(node(), judged(Standing.OVERDUE), now=NOW - HOUR))
    mark = plan_mark(overdue, judged(Standing.NEW), now=NOW)
    assert mark.condition is not None
    assert mark.condition["lastTransitionTime"] == shown_time(NOW - HOUR)


@pytest.mark.parametrize(
    "taints",
    [
        pytest.param([{**OURS, "effect": "NoExecute"}], id="with another effect"),
        pytest.param([OURS, {**OURS, "effect": "NoExecute"}], id="twice"),
        pytest.param([], id="not at all"),
    ],
)
def test_a_taint_that_somebody_changed_is_put_right(taints: Any) -> None:
    mark = plan_mark(node(taints=taints), judged(Standing.FAILED), now=NOW)
    assert mark.taints == (OURS,)


@pytest.mark.parametrize("taints", [[], [OURS]])
def test_nothing_changes_while_nobody_could_be_heard(taints: Any) -> None:
    mark = plan_mark(node(taints=taints), judged(Standing.UNHEARD), now=NOW)
    assert not mark.is_needed


class Cluster:
    """A reader of identities and a marker of Nodes; ``trouble`` maps node names to what their writes raise."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.found = {one["metadata"]["name"]: one for one in nodes}
        self.trouble: dict[str, Reason] = {}
        self.attested: dict[str, dt.datetime | None] = {}
        self.admission = "Approved"
        self.events: list[str] = []
        self.labels: list[tuple[str, dict[str, Any]]] = []
        self.unlabelled = False
        self.writes = self.rounds = 0

    def objects(self, plural: str, *, where: Any = None) -> tuple[Any, ...]:
        del plural
        wanted = (where or {}).get("metadata.name")
        found = tuple(self._identity(name) for name in self.attested)
        return tuple(one for one in found if wanted in {None, one["metadata"]["name"]})

    def _identity(self, name: str) -> dict[str, Any]:
        ek, moment = name.encode().hex().ljust(64, "0"), self.attested[name]
        return {
            "metadata": {"name": f"ek-{ek[:20]}", "resourceVersion": "3"},
            "spec": {"ekSha256": ek, "nodeName": name, "role": "worker", "admission": self.admission},
            "status": {"phase": "Joined", **({"lastAttestation": {"time": shown_time(moment)}} if moment else {})},
        }

    def nodes(self) -> tuple[Any, ...]:
        self.rounds += 1
        return tuple(copy.deepcopy(one) for one in self.found.values())

    def node(self, name: str) -> Any:
        return copy.deepcopy(self.found.get(name))

    def set_taints(self, name: str, taints: Any, *, revision: str) -> None:
        if name in self.trouble:
            raise ApiError("no", reason=self.trouble[name])
        assert revision == self.found[name]["metadata"]["resourceVersion"]
        self.found[name]["spec"]["taints"] = list(taints)
        self.writes += 1

    def set_condition(self, name: str, condition: Any) -> None:
        self.found[name]["status"]["conditions"] = [dict(condition)]
        self.writes += 1

    def set_labels(self, name: str, labels: Any) -> None:
        if self.unlabelled:
            raise ApiError("no", reason=Reason.API_FORBIDDEN)
        self.labels.append((name, dict(labels)))
        known = self.found[name]["metadata"].setdefault("labels", {})
        for label, value in labels.items():
            known.pop(label, None)
            known.update({label: value} if value else {})

    def record_event(self, event: Any) -> None:
        self.events.append(event["metadata"]["name"])


class Clock:
    """A clock that stands at NOW."""

    def now(self) -> dt.datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody sleeps here, not even {seconds} s")


class Passing(Clock):
    """A clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


def watcher(
    cluster: Cluster,
    marked: list[tuple[str, str]] | None = None,
    *,
    cached: RegistrationReader | None = None,
    clock: Clock | None = None,
) -> StandingWatcher:
    told = [] if marked is None else marked
    policy = LivePolicy(cluster, None, clock=Clock())  # type: ignore[arg-type]  # registrations ask no guard
    return StandingWatcher(
        cluster,
        policy,
        cached=cached or policy,
        clock=clock or Clock(),
        overdue_after=3 * HOUR,
        grace=dt.timedelta(0),
        marked=lambda name, standing: told.append((name, standing)),
    )


def test_a_round_marks_what_is_to_mark_and_the_next_one_nothing() -> None:
    cluster, marked = Cluster(node("w-1"), node("w-2"), node("stray")), []
    cluster.attested = {"w-1": NOW - 5 * HOUR, "w-2": NOW}
    watch = watcher(cluster, marked)
    assert not watch.look()
    assert marked == [("w-1", "overdue"), ("w-2", "good")]
    assert cluster.events == ["w-1.reattestationoverdue"]
    assert cluster.found["w-1"]["spec"]["taints"] == [OURS]
    assert cluster.found["stray"] == node("stray")
    assert cluster.labels == [("w-2", {LABELS[0]: "2026-11-21T12"})]
    assert watch.bad == 1
    assert watch.attested == {"w-1": (NOW - 5 * HOUR).timestamp(), "w-2": NOW.timestamp()}
    assert watch.looked_at == NOW.timestamp()
    before = cluster.writes
    watch.look()
    assert cluster.writes == before
    assert len(marked) == 2


GOOD = IdentityStatus(attested_at=NOW, profile="debian13", posture="boot")
SHOWN = dict(zip(LABELS, ("2026-11-21T12", "boot", "debian13"), strict=True))


def labelled(labels: dict[str, str]) -> dict[str, Any]:
    found = node()
    found["metadata"]["labels"] = labels
    return found


@pytest.mark.parametrize(
    ("found", "status", "standing", "change"),
    [
        pytest.param({}, GOOD, Standing.GOOD, SHOWN, id="none yet"),
        pytest.param({**SHOWN, "a": "b"}, GOOD, Standing.GOOD, {}, id="all as they are to be"),
        pytest.param(
            {**SHOWN, LABELS[0]: "2026-11-21T11"}, GOOD, Standing.GOOD, {LABELS[0]: "2026-11-21T12"}, id="another hour"
        ),
        pytest.param({**SHOWN, "a": "b"}, GOOD, Standing.FAILED, dict.fromkeys(LABELS), id="refused"),
        pytest.param(SHOWN, GOOD, Standing.OVERDUE, dict.fromkeys(LABELS), id="overdue"),
        pytest.param({LABELS[1]: "root"}, GOOD, Standing.NEW, {LABELS[1]: None}, id="nothing proven yet"),
        pytest.param(SHOWN, GOOD, Standing.UNHEARD, {}, id="nobody could be heard"),
        pytest.param(
            SHOWN, replace(GOOD, profile="p" * 64), Standing.GOOD, {LABELS[2]: None}, id="a name that is no value"
        ),
        pytest.param({}, replace(GOOD, profile="p" * 63), Standing.GOOD, {**SHOWN, LABELS[2]: "p" * 63}, id="as long"),
        pytest.param(SHOWN, replace(GOOD, posture="-"), Standing.GOOD, {LABELS[1]: None}, id="a posture that is none"),
    ],
)
def test_labels(found: Any, status: IdentityStatus, standing: Standing, change: Any) -> None:
    assert plan_labels(labelled(found), status, judged(standing)) == change


def test_labels_are_bounded_and_keep_no_node_from_its_taint() -> None:
    """An admission policy of an earlier release refuses them."""
    cluster = Cluster(*(node(f"w-{number}") for number in range(25)), node("bad"))
    cluster.attested = dict.fromkeys(cluster.found, NOW) | {"bad": NOW - 5 * HOUR}
    cluster.unlabelled = True
    watch = watcher(cluster)
    for _unused in range(2):
        left = 0
        try:
            left = watch.look()
        except ApiError as error:
            assert error.code == "API_FORBIDDEN"
    assert left == 0
    assert cluster.found["bad"]["spec"]["taints"] == [OURS]
    cluster.unlabelled = False
    assert watch.look()
    assert len(cluster.labels) == 20
    assert not watch.look()
    assert len(cluster.labels) == 25


def test_which_nodes_are_ready() -> None:
    cluster = Cluster(
        node("w-1", conditions=[{"type": "Ready", "status": "True"}]),
        node("w-2", conditions=[{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"}]),
        node("w-3"),
        node("stray", conditions=[{"type": "Ready", "status": "True"}]),
    )
    cluster.attested = {"w-1": NOW, "w-2": NOW, "w-3": NOW}
    watch = watcher(cluster)
    watch.look()
    assert watch.ready == {"w-1": 1.0, "w-2": 0.0, "w-3": 0.0}


def test_what_could_not_be_read_leaves_the_time_of_the_last_look() -> None:
    cluster = Cluster(node("w-1"))
    cluster.attested = {"w-1": None}
    watch = watcher(cluster)
    assert (watch.looked_at, watch.attested) == (0.0, {})
    watch.look()
    assert watch.attested == {"w-1": 0.0}

    def away() -> Any:
        raise ApiError("expected an answer", reason=Reason.API_UNAVAILABLE)

    cluster.nodes = away  # type: ignore[method-assign]
    watch.looked_at = 1.0
    with pytest.raises(ApiError):
        watch.look()
    assert (watch.looked_at, watch.attested) == (1.0, {"w-1": 0.0})


def test_machines_that_were_revoked_are_left_to_the_revocation() -> None:
    cluster = Cluster(node("w-1"))
    cluster.attested, cluster.admission = {"w-1": NOW - 5 * HOUR}, "Revoked"
    watcher(cluster).look()
    assert cluster.writes == 0


def test_a_round_is_bounded_and_says_that_more_is_left() -> None:
    cluster = Cluster(*(node(f"w-{number}") for number in range(25)))
    cluster.attested = dict.fromkeys(cluster.found, NOW - 5 * HOUR)
    watch = watcher(cluster)
    assert watch.look()
    assert len(cluster.events) == 20
    assert not watch.look()
    assert len(cluster.events) == 25


def test_a_conflict_is_tried_again_and_keeps_no_other_node_waiting() -> None:
    cluster = Cluster(node("w-1"), node("w-2"))
    cluster.attested = dict.fromkeys(cluster.found, NOW - 5 * HOUR)
    cluster.trouble = {"w-1": Reason.API_CONFLICT}
    watch = watcher(cluster)
    assert watch.look()
    assert cluster.events == ["w-2.reattestationoverdue"]
    cluster.trouble = {}
    assert not watch.look()
    assert cluster.events == ["w-2.reattestationoverdue", "w-1.reattestationoverdue"]


def identity_of(name: str) -> str:
    return f"ek-{name.encode().hex().ljust(64, '0')[:20]}"


def test_who_is_woken_for_one_node_looks_at_that_one_alone() -> None:
    cluster, marked = Cluster(node("w-1"), node("w-2"), node("w-3")), []
    cluster.attested = dict.fromkeys(cluster.found, NOW)
    watch = watcher(cluster, marked)
    watch.look()
    marked.clear()
    cluster.attested = dict.fromkeys(cluster.found, NOW - 5 * HOUR)
    assert not watch.look_at([identity_of("w-2"), identity_of("gone")])
    assert (marked, cluster.rounds) == ([("w-2", "overdue")], 1)
    assert (watch.bad, set(watch.standings)) == (1, {"w-1", "w-2", "w-3"})
    assert watch.attested["w-2"] < watch.attested["w-1"]


def test_a_node_that_is_gone_is_not_looked_at() -> None:
    cluster = Cluster(node("w-1"))
    cluster.attested = {"w-1": NOW, "w-2": NOW}
    watch = watcher(cluster)
    assert not watch.look_at([identity_of("w-2")])
    assert (cluster.writes, watch.standings) == (0, {})


def test_a_round_is_one_list_however_many_nodes_are_left_or_woken() -> None:
    cluster = Cluster(*(node(f"w-{number:02}") for number in range(50)), node("late"))
    cluster.attested = dict.fromkeys(cluster.found, NOW - 5 * HOUR) | {"late": NOW}
    watch = watcher(cluster, clock=Passing())
    watch.wake(identity_of("late"))
    watch.run_once(5.0)
    assert (cluster.rounds, len(cluster.events)) == (1, 50)
    watch.run_once(5.0)
    assert cluster.rounds == 2


def test_a_round_takes_what_the_watch_has_told_and_asks_without_one() -> None:
    class Away:
        def registrations(self, _node_name: str = "") -> Any:
            raise ApiError("expected a watch", reason=Reason.API_UNAVAILABLE)

        unreadable = registrations

    class Told(Away):
        def registrations(self, _node_name: str = "") -> Any:
            return ()

    cluster = Cluster(node("w-1"))
    cluster.attested = {"w-1": NOW}
    assert watcher(cluster, cached=Away()).look() is False
    assert cluster.writes == 1
    told = watcher(cluster, cached=Told())
    told.look()
    assert told.standings == {}


def test_trouble_is_raised_once_every_node_had_its_turn() -> None:
    cluster = Cluster(node("w-1"), node("w-2"))
    cluster.attested = dict.fromkeys(cluster.found, NOW - 5 * HOUR)
    cluster.trouble = {"w-1": Reason.API_FORBIDDEN}
    with pytest.raises(ApiError) as caught:
        watcher(cluster).look()
    assert caught.value.code == "API_FORBIDDEN"
    assert cluster.events == ["w-2.reattestationoverdue"]
