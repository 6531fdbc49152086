# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live policy: one read a decision, and who becomes `Joined`."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import CachedPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, PROFILES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import (
    LivePolicy,
    StatusChange,
    StatusWriter,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import (
    SOON_SECONDS,
    WATCH_SECONDS,
    NodeWatcher,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import TpmRecord
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import GivenPolicy

EK = "ab" * 32
NAME = f"ek-{EK[:20]}"

DRAWN, ASSIGNED = "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69", "00000000-0000-4000-8000-000000000000"


def identity(ek: str = EK, **spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": "w-1", "role": "worker", "admission": "Approved", **spec},
    }


def profile(name: str = "base", **spec: Any) -> dict[str, Any]:
    values = [{"sha256": "04" * 32, "label": "good"}]
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "MeasurementProfile",
        "metadata": {"name": name},
        "spec": {"posture": "boot", "registers": [{"pcr": 4, "values": values}], **spec},
    }


def live_of(gateway: FakeGateway) -> LivePolicy:
    """Return the policy of an API whose profile ``base`` is the site's."""
    return LivePolicy(gateway, GivenPolicy(profile()), clock=SystemClock())


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(identity(), profile())


def test_it_answers_as_the_api_stands_now(gateway: FakeGateway) -> None:
    live = live_of(gateway)
    assert live.identity_for(EK).node_name == "w-1"
    assert [one.name for one in live.profiles()] == ["base"]
    assert live.selection() == (4, 15)
    gateway.apply(identity(admission="Revoked"))
    with pytest.raises(AttestedError) as caught:
        live.identity_for(EK)
    assert caught.value.code == "IDENTITY_REVOKED"


def test_a_change_of_the_policy_or_of_a_profile_counts_at_once(gateway: FakeGateway) -> None:
    """What counts is kept between calls, so each change has to be noticed: also one of the policy alone."""
    more = profile("more", registers=[{"pcr": 7, "values": [{"sha256": "07" * 32, "label": "good"}]}])
    gateway.apply(more)
    guard = GivenPolicy(profile())
    live = LivePolicy(gateway, guard, clock=SystemClock())

    def counting() -> tuple[list[str], list[str], tuple[int, ...]]:
        of_machine = [one.name for one in live.snapshot_for(EK).profiles()]
        return [one.name for one in live.profiles()], of_machine, live.selection()

    assert counting() == (["base"], ["base"], (4, 15))
    guard.policy = GivenPolicy(profile(), more).policy
    assert counting() == (["base", "more"], ["base", "more"], (4, 7, 15))
    gateway.apply(profile(posture="keys"))  # its digest is another one now
    assert counting() == (["more"], ["more"], (7, 15))
    guard.policy = GivenPolicy(profile(posture="keys")).policy
    assert counting() == (["base"], ["base"], (4, 15))
    gateway.delete(PROFILES, "base")
    assert counting() == ([], [], (15,))


def test_a_snapshot_does_not_move(gateway: FakeGateway) -> None:
    snapshot = live_of(gateway).snapshot()
    gateway.apply(identity(admission="Revoked"))
    assert snapshot.registration_for(EK).identity.node_name == "w-1"


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        pytest.param(lambda api: setattr(api, "down", True), "API_UNAVAILABLE", id="no API server"),
        pytest.param(lambda api: api.apply(identity(role="all")), "MANIFEST_INVALID", id="an identity of no meaning"),
        pytest.param(lambda api: api.apply(identity("cd" * 32)), "IDENTITY_AMBIGUOUS", id="two machines of one name"),
    ],
)
def test_what_cannot_be_read_is_a_refusal(gateway: FakeGateway, prepare: Any, code: str) -> None:
    prepare(gateway)
    with pytest.raises(AttestedError) as caught:
        live_of(gateway).identity_for(EK)
    assert caught.value.code == code


OTHER = "cd" * 32
BAD_PROFILE = {**profile("odd"), "spec": {**profile()["spec"], "expires": "0001-01-01T00:00:00+14:00"}}


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(BAD_PROFILE, id="a profile whose date no zone can hold"),
        pytest.param(profile("odd", posture="all"), id="a profile of an unknown posture"),
        pytest.param({**profile("odd"), "spec": None}, id="a profile without a spec"),
        pytest.param(identity(OTHER, nodeName="w-2", role="all"), id="another machine's identity"),
        pytest.param({**identity(OTHER), "spec": {}}, id="an identity that says nothing"),
    ],
)
def test_an_object_of_no_meaning_hides_no_other(gateway: FakeGateway, bad: dict[str, Any]) -> None:
    gateway.apply(bad)
    live = live_of(gateway)
    assert live.identity_for(EK).node_name == "w-1"
    assert [one.name for one in live.profiles()] == ["base"]
    assert live.selection() == (4, 15)
    assert [one.identity.node_name for one in live.registrations()] == ["w-1"]
    (named,) = live.unreadable()
    assert named.startswith(f"expected valid manifests, got {bad['kind']} {bad['metadata']['name']}")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        pytest.param(identity(OTHER, role="all"), "MANIFEST_INVALID", id="of the same node"),
        pytest.param(identity(OTHER, nodeName="w-2", ekAliasSha256=EK, role="?"), "MANIFEST_INVALID", id="of one key"),
    ],
)
def test_an_identity_of_no_meaning_refuses_the_machine_that_it_is_about(
    gateway: FakeGateway, bad: dict[str, Any], code: str
) -> None:
    """It may be a revocation, or the live identity of that node."""
    live = live_of(gateway)
    live.identity_for(EK)
    gateway.apply(bad)
    with pytest.raises(AttestedError) as caught:
        live.identity_for(EK)
    assert caught.value.code == code


def test_a_status_is_written_in_the_apis_words(gateway: FakeGateway) -> None:
    moment = datetime(2026, 11, 21, 14, 0, 1, 999_999, tzinfo=timezone(timedelta(hours=2)))
    change = StatusChange(
        phase="Admitted",
        disk_id="00000000-0000-4000-8000-000000000000",
        ak_name="000b" + "11" * 32,
        clock=5,
        reset_count=2,
        restart_count=1,
        attested_at=moment,
        profile="base",
        posture="boot",
        issued=1,
        key_sha256="22" * 32,
        expires=moment,
    )
    live = live_of(gateway)
    StatusWriter(gateway).write(live.snapshot().registration_for(EK), change)
    assert gateway.status(NAME) == {
        "phase": "Admitted",
        "diskId": "00000000-0000-4000-8000-000000000000",
        "akName": "000b" + "11" * 32,
        "tpm": {"clock": 5, "resetCount": 2, "restartCount": 1},
        "lastAttestation": {"time": "2026-11-21T12:00:01Z", "profile": "base", "posture": "boot"},
        "tickets": {"issued": 1, "superseded": 0, "keySha256": "22" * 32, "expires": "2026-11-21T12:00:01Z"},
    }
    again = live.snapshot().registration_for(EK)
    assert (again.issued, again.identity.status.disk_id) == (1, "00000000-0000-4000-8000-000000000000")
    assert again.identity.status.tpm == TpmRecord(clock=5, reset_count=2, restart_count=1)


def test_a_change_in_between_is_a_conflict(gateway: FakeGateway) -> None:
    registration = live_of(gateway).snapshot().registration_for(EK)
    gateway.apply(identity(admission="Revoked"))
    with pytest.raises(AttestedError) as caught:
        StatusWriter(gateway).write(registration, StatusChange(phase="Admitted"))
    assert caught.value.code == "API_CONFLICT"
    assert gateway.status(NAME) == {}


def cached_of(gateway: FakeGateway) -> CachedPolicy:
    """Return a cached policy with all identities as they are now; it receives no further changes."""
    cached = CachedPolicy(gateway, GivenPolicy(profile()), clock=SystemClock())
    cached.caches[IDENTITIES]._begin(*gateway.listing(IDENTITIES))
    return cached


def watcher(gateway: FakeGateway, *, own_name: str = "cp-1", own_disk: str = "") -> tuple[NodeWatcher, list[str]]:
    joined: list[str] = []
    made = NodeWatcher(
        gateway,
        live_of(gateway),
        StatusWriter(gateway),
        cached=cached_of(gateway),
        own_name=own_name,
        joined=joined.append,
        own_disk=lambda: own_disk,
    )
    return made, joined


def set_phase(gateway: FakeGateway, phase: str) -> None:
    registration = next(one for one in live_of(gateway).snapshot().registrations if one.identity.name == NAME)
    gateway.patch_status(IDENTITIES, NAME, status={"phase": phase}, revision=registration.revision)


@pytest.mark.parametrize(
    ("phase", "admission", "nodes", "own_name", "expected"),
    [
        pytest.param("Admitted", "Approved", ["w-1"], "cp-1", ["w-1"], id="an admitted machine whose Node is there"),
        pytest.param("Admitted", "Approved", ["w-2"], "cp-1", [], id="another Node"),
        pytest.param("Admitted", "Approved", [], "cp-1", [], id="no Node yet"),
        pytest.param("Joined", "Approved", ["w-1"], "cp-1", [], id="joined already"),
        pytest.param("", "Approved", ["w-1"], "cp-1", [], id="a Node of a machine that never held a ticket"),
        pytest.param("", "Approved", ["w-1"], "w-1", ["w-1"], id="this very control plane"),
        pytest.param("Admitted", "Revoked", ["w-1"], "cp-1", [], id="a revoked machine"),
    ],
)
def test_who_becomes_joined(
    gateway: FakeGateway, phase: str, admission: str, nodes: list[str], own_name: str, expected: list[str]
) -> None:
    gateway.apply(identity(admission=admission))
    set_phase(gateway, phase)
    gateway.nodes = nodes
    watch, joined = watcher(gateway, own_name=own_name)
    watch.run_once()
    assert joined == expected
    assert gateway.status(NAME)["phase"] == ("Joined" if expected else phase)


@pytest.mark.parametrize(
    ("own_name", "own_disk", "known", "expected"),
    [
        pytest.param("w-1", DRAWN, "", DRAWN, id="the one that it drew itself"),
        pytest.param("w-1", "", "", None, id="it has none"),
        pytest.param("w-1", DRAWN, ASSIGNED, ASSIGNED, id="one was assigned before"),
        pytest.param("cp-1", DRAWN, "", None, id="another machine's"),
    ],
)
def test_the_founders_disk_is_written_with_its_phase(
    gateway: FakeGateway, own_name: str, own_disk: str, known: str, expected: str | None
) -> None:
    registration = live_of(gateway).snapshot().registration_for(EK)
    told = {"phase": "Admitted", **({"diskId": known} if known else {})}
    gateway.patch_status(IDENTITIES, NAME, status=told, revision=registration.revision)
    gateway.nodes = ["w-1"]
    watch, _joined = watcher(gateway, own_name=own_name, own_disk=own_disk)
    watch.run_once()
    assert (gateway.status(NAME)["phase"], gateway.status(NAME).get("diskId")) == ("Joined", expected)


def test_a_status_that_changed_meanwhile_is_read_again(gateway: FakeGateway) -> None:
    set_phase(gateway, "Admitted")
    gateway.nodes = ["w-1"]
    gateway.before_write = lambda: gateway.apply(identity(knownBy="enroll"))
    watch, joined = watcher(gateway)
    watch.run_once()
    assert joined == ["w-1"]
    assert gateway.status(NAME)["phase"] == "Joined"


def test_one_node_that_appears_costs_its_own_identities_and_not_all(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each new Node costs would grow with the cluster, and the cluster's with its square."""
    for number in range(2, 5):
        gateway.apply(identity(f"{number:02x}" * 32, nodeName=f"w-{number}"))
    set_phase(gateway, "Admitted")
    read = gateway.objects
    counts = []

    def objects(plural: str, **options: Any) -> tuple[Any, ...]:
        found = read(plural, **options)
        counts.append(len(found))
        return found

    monkeypatch.setattr(gateway, "objects", objects)
    watch, joined = watcher(gateway)
    counts.clear()
    watch.settle(frozenset({"w-1"}))
    assert (joined, counts) == (["w-1"], [])


def test_a_node_of_which_the_watch_has_not_told_is_asked_about(gateway: FakeGateway) -> None:
    watch, joined = watcher(gateway)
    set_phase(gateway, "Admitted")
    watch.settle(frozenset({"w-1", "stray"}))
    assert joined == ["w-1"]


def test_many_nodes_of_which_the_watch_has_not_told_are_one_list(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, joined = watcher(gateway)
    set_phase(gateway, "Admitted")
    read, asked = gateway.objects, []
    monkeypatch.setattr(gateway, "objects", lambda plural, **how: asked.append(how) or read(plural, **how))
    watch.settle(frozenset({"w-1", *(f"stray-{number}" for number in range(16))}))
    assert (joined, asked) == (["w-1"], [{"where": {}}])


def test_without_a_watch_the_api_says_who_has_joined(gateway: FakeGateway) -> None:
    set_phase(gateway, "Admitted")
    watch, joined = watcher(gateway)
    watch._cached.caches[IDENTITIES].invalidate()  # type: ignore[attr-defined]
    watch.settle(frozenset({"w-1"}))
    assert joined == ["w-1"]


def test_what_was_parsed_is_forgotten_in_time() -> None:
    """Machines that nobody enrolled come and go under names without an end."""
    gateway = FakeGateway(profile())
    live = LivePolicy(gateway, GivenPolicy(profile()), clock=SystemClock(), parsed_limit=3)
    for number in range(16, 24):
        gateway.apply(identity(f"{number:02x}" * 32, nodeName=f"w-{number}"))
        assert len(live.registrations()) == number - 15
        assert len(live._parsed) <= 3


def test_an_identity_that_comes_after_its_node_has_joined_soon() -> None:
    gateway = FakeGateway()
    gateway.nodes = ["w-1"]
    watch, joined = watcher(gateway, own_name="w-1")
    watch.run_once()
    gateway.apply(identity())
    for _round in range(3):
        watch.run_once()
    assert joined == ["w-1"]
    assert gateway.watched_seconds == [SOON_SECONDS, SOON_SECONDS, SOON_SECONDS, WATCH_SECONDS]


def test_a_status_that_keeps_its_phase_writes_nothing_about_it() -> None:
    assert StatusChange(attested_at=datetime(2026, 1, 1, tzinfo=UTC)).to_document().keys() == {
        "lastAttestation",
        "lastRefusal",
        "tpm",
    }


def outcome(ask: Any) -> str:
    try:
        return str(ask().node_name)
    except AttestedError as error:
        return error.code


@pytest.mark.parametrize("admissions", list(itertools.product(["", "Approved", "Refused", "Revoked"], repeat=3)))
def test_what_concerns_one_machine_decides_as_the_whole_does(admissions: tuple[str, ...]) -> None:
    """The two small reads leave nothing out: three identities share a key, a name or nothing."""
    documents = [
        identity("ab" * 32, nodeName="w-1"),
        identity("cd" * 32, nodeName="w-1"),
        identity("ef" * 32, nodeName="w-2"),
    ]
    gateway = FakeGateway(profile())
    for document, admission in zip(documents, admissions, strict=True):
        if admission:
            document["spec"]["admission"] = admission
            gateway.apply(document)
    live = live_of(gateway)
    for ek in ("ab" * 32, "cd" * 32, "ef" * 32):
        whole = outcome(lambda ek=ek: live.snapshot().identity_for(ek))
        assert outcome(lambda ek=ek: live.snapshot_for(ek).identity_for(ek)) == whole


def chips(admissions: tuple[str, ...]) -> list[dict[str, Any]]:
    """A chip with two keys, another one with the second of them as its own, and one that is alias of nobody's."""
    made = [
        identity("ab" * 32, nodeName="w-1", ekAliasSha256="cd" * 32),
        identity("cd" * 32, nodeName="w-2"),
        identity("ef" * 32, nodeName="w-3", ekAliasSha256="ab" * 32),
    ]
    for document, admission in zip(made, admissions, strict=True):
        document["spec"]["admission"] = admission
    return [one for one in made if one["spec"]["admission"]]


@pytest.mark.parametrize("admissions", list(itertools.product(["", "Approved", "Refused", "Revoked"], repeat=3)))
def test_what_concerns_one_chip_decides_as_the_whole_does(admissions: tuple[str, ...]) -> None:
    """Found by either key, and with whoever else claims one of them."""
    gateway = FakeGateway(profile(), *chips(admissions))
    live = live_of(gateway)
    for ek in ("ab" * 32, "cd" * 32, "ef" * 32):
        whole = outcome(lambda ek=ek: live.snapshot().identity_for(ek))
        assert outcome(lambda ek=ek: live.snapshot_for(ek).identity_for(ek)) == whole


def test_a_revocation_is_noted_with_every_key_of_the_chip() -> None:
    guard = GivenPolicy(profile())
    gateway = FakeGateway(profile(), *chips(("Revoked", "", "")))
    live = LivePolicy(gateway, guard, clock=SystemClock())
    live.snapshot_for("cd" * 32)
    assert guard.revoked == {"ab" * 32, "cd" * 32}
    guard.revoked = frozenset()
    live.settle_revocations()
    assert guard.revoked == {"ab" * 32, "cd" * 32}


def test_who_holds_a_key_is_told_before_who_only_waits_with_it() -> None:
    waiting = identity("cd" * 32, nodeName=f"ek-{'cd' * 10}", admission="Pending")
    live = live_of(FakeGateway(profile(), waiting, *chips(("Approved", "", ""))))
    found = live.snapshot_for("cd" * 32)
    holder = found.holder_of("cd" * 32)
    assert holder is not None
    assert holder.node_name == "w-1"
    assert found.holder_of("99" * 32) is None
    assert {one.identity.node_name for one in live.registrations_of("cd" * 32)} == {"w-1", f"ek-{'cd' * 10}"}
