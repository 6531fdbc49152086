# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cached policy: what it returns, and that a decision from it counts only if it is true now."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import CachedPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import (
    IDENTITIES,
    POLICIES,
    PROFILES,
    revision_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
    NamedDigest,
    PolicyException,
    profile_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import TpmRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import parse_objects
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import GivenPolicy, PolicySite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EK = "d1" * 32
NAME = f"ek-{EK[:20]}"


def identity(seed: str = "d1", node_name: str = "w-1", **spec: str) -> dict[str, Any]:
    ek = (seed * 64)[:64]
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": node_name, "role": "worker", "admission": "Approved", **spec},
    }


def profile(value: str = "04", *, name: str = "base", pcr: int = 4) -> dict[str, Any]:
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "MeasurementProfile",
        "metadata": {"name": name},
        "spec": {"posture": "boot", "registers": [{"pcr": pcr, "values": [{"sha256": value * 32, "label": "good"}]}]},
    }


@contextmanager
def followed(gateway: FakeGateway) -> Iterator[CachedPolicy]:
    """Yield a cached policy whose identities are watched; its profiles stay as they were at the beginning."""
    cached = CachedPolicy(gateway, GivenPolicy(profile()), clock=SystemClock(), settle_seconds=0.2)
    for plural in (POLICIES, PROFILES):
        cached.caches[plural]._begin(*gateway.listing(plural))

    def follow() -> None:
        with pytest.raises(ApiError):
            cached.caches[IDENTITIES].follow()

    thread = threading.Thread(target=follow)
    before = len(cached.caches[IDENTITIES])
    thread.start()
    while not cached.caches[IDENTITIES]._following:
        thread.join(0.01)
    assert before == 0
    try:
        yield cached
    finally:
        gateway.events.put(None)
        thread.join()


def refused(cached: CachedPolicy, ek: str = EK) -> str:
    with pytest.raises(AttestedError) as caught:
        cached.snapshot_for(ek).identity_for(ek)
    return caught.value.code


def told_revision(gateway: FakeGateway, name: str = NAME) -> str:
    gateway.told(IDENTITIES, name)
    found = gateway.object(IDENTITIES, name)
    assert found is not None
    return str(found["metadata"]["resourceVersion"])


def test_it_answers_as_it_heard() -> None:
    gateway = FakeGateway(identity(), identity("d2", "w-2"), profile())
    with followed(gateway) as cached:
        assert cached.snapshot_for(EK).identity_for(EK).node_name == "w-1"
        assert cached.selection() == (4, 15)
        assert len(cached.caches[IDENTITIES]) == 2


def test_it_answers_nothing_before_it_has_read_and_after_the_watch_broke() -> None:
    gateway = FakeGateway(identity(), profile())
    assert refused(CachedPolicy(gateway, GivenPolicy(profile()), clock=SystemClock())) == "API_UNAVAILABLE"
    with followed(gateway) as cached:
        pass
    assert refused(cached) == "API_UNAVAILABLE"


def test_the_state_of_a_tpm_at_its_last_evidence() -> None:
    status = {"tpm": {"clock": 7, "resetCount": 5, "restartCount": 6}}
    gateway = FakeGateway(identity(), identity("d2", "w-2", ekAliasSha256="d3" * 32), profile())
    never = TpmRecord(clock=0, reset_count=0, restart_count=0)
    with followed(gateway) as cached:
        assert [cached.last_tpm(ek * 32) for ek in ("d1", "d3", "d4")] == [never, never, None]
        gateway.patch_status(IDENTITIES, NAME, status=status, revision=told_revision(gateway))
        cached.caches[IDENTITIES].wait_for(int(told_revision(gateway)), seconds=5)
        assert cached.last_tpm(EK) == TpmRecord(clock=7, reset_count=5, restart_count=6)
    assert cached.last_tpm(EK) is None, "the watch ended"


def test_a_revocation_that_was_heard_counts() -> None:
    gateway = FakeGateway(identity(), profile())
    with followed(gateway) as cached:
        gateway.apply(identity(admission="Revoked"))
        with pytest.raises(AttestedError) as caught:
            cached.settle(EK, told_revision(gateway))
    assert caught.value.code == "IDENTITY_REVOKED"


def test_a_second_identity_of_the_node_s_name_is_found_before_the_ticket_goes_out() -> None:
    gateway = FakeGateway(identity(), profile())
    with followed(gateway) as cached:
        gateway.apply(identity("d2", "w-1"))
        gateway.told(IDENTITIES, identity("d2")["metadata"]["name"], "ADDED")
        registration = cached.snapshot_for(EK).registrations[0]
        written = gateway.patch_status(IDENTITIES, NAME, status={"phase": "Admitted"}, revision=registration.revision)
        gateway.told(IDENTITIES, NAME)
        with pytest.raises(AttestedError) as caught:
            cached.settle(EK, written)
    assert caught.value.code == "IDENTITY_AMBIGUOUS"


def test_a_deleted_identity_is_forgotten() -> None:
    gateway = FakeGateway(identity(), identity("d2", "w-2"), profile())
    with followed(gateway) as cached:
        gateway.told(IDENTITIES, NAME, "DELETED")
        gateway.apply(identity("d2", "w-2", knownBy="console"))
        cached.settle("d2" * 32, told_revision(gateway, f"ek-{('d2' * 32)[:20]}"))
        assert refused(cached) == "IDENTITY_UNKNOWN"


def test_a_write_that_the_watch_does_not_deliver_ends_the_trust_in_it() -> None:
    gateway = FakeGateway(identity(), profile())
    with followed(gateway) as cached:
        with pytest.raises(ApiError) as caught:
            cached.settle(EK, "999")
        assert caught.value.code == "API_UNAVAILABLE"
        assert refused(cached) == "API_UNAVAILABLE"


def test_a_policy_that_is_no_longer_what_it_was_confirms_nothing() -> None:
    """Written again, even with the same content; deleted; or made anew, which gives another uid."""
    site = PolicySite(b"")
    first = site.sign([profile()])
    changes: tuple[Callable[[FakeGateway], None], ...] = (
        lambda api: api.apply(site.sign([profile()])),
        lambda api: api.apply(first),
        lambda api: api.delete(POLICIES, "cluster"),
        lambda api: api._objects[POLICIES]["cluster"]["metadata"].update(uid="another"),
    )
    for change in changes:
        gateway = FakeGateway(identity(), profile(), first)
        cached = CachedPolicy(gateway, GivenPolicy(profile()), clock=SystemClock())
        for plural in cached.caches:
            cached.caches[plural]._begin(*gateway.listing(plural))
        snapshot = cached.snapshot_for(EK)
        cached.confirm(snapshot)
        change(gateway)
        with pytest.raises(ApiError) as caught:
            cached.confirm(snapshot)
        assert caught.value.code == "API_CONFLICT"


@pytest.mark.parametrize(
    "metadata", [None, {}, {"uid": "u"}, {"resourceVersion": "7"}, {"uid": "", "resourceVersion": "7"}]
)
def test_an_answer_without_a_revision_is_an_error(metadata: dict[str, str] | None) -> None:
    with pytest.raises(ApiError) as caught:
        revision_of({"metadata": metadata})
    assert caught.value.code == "API_UNAVAILABLE"


@pytest.mark.parametrize(
    ("ek", "ends", "counts"),
    [
        pytest.param(EK, datetime(2999, 1, 1, tzinfo=UTC), True, id="the machine that it names, in its time"),
        pytest.param("d2" * 32, datetime(2999, 1, 1, tzinfo=UTC), False, id="another machine"),
        pytest.param(EK, datetime(2001, 1, 1, tzinfo=UTC), False, id="the same, once it has ended"),
    ],
)
def test_an_excepted_profile_is_quoted_for_and_counts_for_its_machine(ek: str, ends: datetime, counts: bool) -> None:
    odd = profile(name="odd", pcr=2)
    gateway = FakeGateway(identity(), identity("d2", "w-2"), profile(), odd)
    guard = GivenPolicy(profile())
    named = NamedDigest("odd", profile_sha256(parse_objects([("test", odd)]).profiles[0]))
    exception = PolicyException(profile=named, machines=(EK,), expires=ends, why="its firmware came first")
    guard.policy = replace(guard.policy, exceptions=(exception,))
    cached = CachedPolicy(gateway, guard, clock=SystemClock())
    for plural in cached.caches:
        cached.caches[plural]._begin(*gateway.listing(plural))
    assert cached.selection() == (2, 4, 15)
    assert ("odd" in [one.name for one in cached.snapshot_for(ek).profiles()]) is counts


def test_a_machine_is_found_by_its_second_key_until_that_is_gone() -> None:
    second = "d9" * 32
    gateway = FakeGateway(identity(ekAliasSha256=second), profile())
    with followed(gateway) as cached:
        assert cached.snapshot_for(second).identity_for(second).node_name == "w-1"
        gateway.apply(identity())
        cached.caches[IDENTITIES].wait_for(int(told_revision(gateway)), seconds=5)
        assert refused(cached, second) == "IDENTITY_UNKNOWN"
