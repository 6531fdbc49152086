# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ConfigMaps of the admission policies: what they have, when they are written, and that no older view wins."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import ObjectCache
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, POLICIES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import (
    ADDRESS_LIST,
    AT_REVISION,
    LIST_SECONDS,
    REINSTATED_LIST,
    REVOKED_LIST,
    AdmissionLists,
    plan_lists,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

KEY = "ab" * 32


def identity(node: str, admission: str = "Approved", **spec: Any) -> dict[str, Any]:
    metadata = {"name": f"ek-{node}"}
    return {"kind": "NodeIdentity", "metadata": metadata, "spec": {"nodeName": node, "admission": admission, **spec}}


def policy(*reinstated: str) -> dict[str, Any]:
    spec = {"reinstated": list(reinstated)} if reinstated else {}
    return {"kind": "AttestationPolicy", "metadata": {"name": "cluster"}, "spec": spec}


class Lists:
    """The writer of one control plane, whose watch has delivered what `see` found."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway
        self.caches = {plural: ObjectCache(gateway, plural) for plural in (IDENTITIES, POLICIES)}
        self.clock = SteppingClock()
        self.lists = AdmissionLists(self.caches, gateway, clock=self.clock)

    def see(self) -> None:
        for plural, cache in self.caches.items():
            cache._begin(*self.gateway.listing(plural))

    def data(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.gateway.config_maps[name].get("data", {})
        return found


@pytest.fixture
def gateway() -> FakeGateway:
    """An API with the three ConfigMaps, as the playbooks apply them: without data."""
    made = FakeGateway(policy())
    for name in (REVOKED_LIST, REINSTATED_LIST, ADDRESS_LIST):
        made.config_maps[name] = {"metadata": {"name": name, "resourceVersion": "1"}}
    return made


@pytest.fixture
def one(gateway: FakeGateway) -> Lists:
    """The writer of one control plane."""
    return Lists(gateway)


@pytest.mark.parametrize(
    ("found", "revoked", "addresses"),
    [
        pytest.param(identity("w-1"), {}, {"w-1": "w-1"}, id="a node without addresses in the site"),
        pytest.param(
            identity("w-1", addresses=["192.0.2.1", "2001:db8::1"]),
            {},
            {"192.0.2.1": "w-1", "2001_db8__1": "w-1", "w-1": "w-1"},
            id="addresses of both kinds",
        ),
        pytest.param(identity("w-1", "Revoked", addresses=["192.0.2.1"]), {"ek-w-1": "w-1"}, {}, id="revoked"),
        pytest.param(identity("w-1", "Pending"), {}, {}, id="nobody has decided"),
        pytest.param(identity("w-1", "Refused", addresses=["192.0.2.1"]), {}, {}, id="refused"),
    ],
)
def test_what_an_identity_is_listed_for(
    found: dict[str, Any], revoked: dict[str, str], addresses: dict[str, str]
) -> None:
    assert plan_lists([found], [policy()]) == {REVOKED_LIST: revoked, REINSTATED_LIST: {}, ADDRESS_LIST: addresses}


def test_what_the_policy_takes_back() -> None:
    assert plan_lists([], [policy(KEY)])[REINSTATED_LIST] == {KEY: ""}
    assert plan_lists([], [])[REINSTATED_LIST] == {}


def test_only_what_differs_is_written(one: Lists) -> None:
    one.gateway.apply(identity("w-1", "Revoked"))
    one.see()
    one.lists.write()
    assert one.data(REVOKED_LIST) == {"ek-w-1": "w-1"}
    assert one.gateway.writes == 1
    one.lists.write()
    assert one.gateway.writes == 1
    one.gateway.apply(identity("w-1"))
    one.see()
    one.lists.write()
    assert (one.data(REVOKED_LIST), one.data(ADDRESS_LIST)) == ({}, {"w-1": "w-1"})


def test_a_change_by_somebody_else_is_taken_back(one: Lists) -> None:
    one.gateway.apply(identity("w-1", "Revoked"))
    one.see()
    one.lists.write()
    one.gateway.config_maps[REVOKED_LIST]["data"] = {"ek-w-2": "w-2"}
    one.lists.write()
    assert one.data(REVOKED_LIST) == {"ek-w-1": "w-1"}


def test_a_view_that_lags_behind_takes_nothing_back(one: Lists) -> None:
    """Another control plane has seen the revocation already; this one writes again once it has, too."""
    other = Lists(one.gateway)
    one.gateway.apply(identity("w-1"))
    one.see()
    one.gateway.apply(identity("w-1", "Revoked"))
    other.see()
    other.lists.write()
    revision = one.gateway.config_maps[REVOKED_LIST]["metadata"]["annotations"][AT_REVISION]
    assert int(revision) == other.caches[IDENTITIES].listed()[1]
    one.lists.write()
    assert one.data(REVOKED_LIST) == {"ek-w-1": "w-1"}
    one.gateway.apply(identity("w-1"))
    one.see()
    one.lists.write()
    assert one.data(REVOKED_LIST) == {}


def test_nor_does_a_watch_of_the_policy_that_alone_lags_behind(one: Lists) -> None:
    other = Lists(one.gateway)
    one.see()
    one.gateway.apply(policy(KEY))
    other.see()
    other.lists.write()
    one.gateway.apply(identity("w-1"))
    one.caches[IDENTITIES]._begin(*one.gateway.listing(IDENTITIES))
    one.lists.write()
    assert (one.data(REINSTATED_LIST), one.data(ADDRESS_LIST)) == ({KEY: ""}, {"w-1": "w-1"})
    one.see()
    one.lists.write()
    assert one.data(REINSTATED_LIST) == {KEY: ""}


def test_a_foreign_annotation_stops_nothing(one: Lists) -> None:
    one.gateway.config_maps[REVOKED_LIST]["metadata"]["annotations"] = {AT_REVISION: "9x"}
    one.gateway.apply(identity("w-1", "Revoked"))
    one.see()
    one.lists.write()
    assert one.data(REVOKED_LIST) == {"ek-w-1": "w-1"}


def test_a_list_that_is_missing_stops_no_other(one: Lists) -> None:
    del one.gateway.config_maps[REVOKED_LIST]
    one.gateway.apply(identity("w-1"))
    one.see()
    one.lists.write()
    assert one.data(ADDRESS_LIST) == {"w-1": "w-1"}


def test_nothing_is_written_without_a_watch(one: Lists) -> None:
    one.gateway.apply(identity("w-1"))
    with pytest.raises(ApiError) as caught:
        one.lists.write()
    assert caught.value.reason is Reason.API_UNAVAILABLE
    assert one.gateway.writes == 0


def woken(one: Lists, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list to which each wait that nothing ends adds its seconds."""
    waited: list[float] = []

    def wait(event: threading.Event, seconds: float) -> None:
        if not event.is_set():
            waited.append(seconds)

    monkeypatch.setattr(threading.Event, "wait", wait)
    return waited


def test_a_changed_spec_is_written_soon_and_a_status_later(one: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = woken(one, monkeypatch)
    one.gateway.apply(identity("w-1"))
    one.see()
    one.lists.run_once()
    assert (one.data(ADDRESS_LIST), waited) == ({"w-1": "w-1"}, [])
    one.see()  # the same specs
    one.lists.run_once()
    assert waited == [LIST_SECONDS]


def test_a_conflict_is_compared_again_at_once(one: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = woken(one, monkeypatch)
    one.gateway.apply(identity("w-1"))
    one.see()
    one.gateway.before_write = lambda: one.gateway._touch(one.gateway.config_maps[ADDRESS_LIST])
    one.lists.run_once()
    assert one.gateway.writes == 0
    one.lists.run_once()
    assert (one.data(ADDRESS_LIST), waited) == ({"w-1": "w-1"}, [])


def test_trouble_is_raised_and_tried_again(one: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = woken(one, monkeypatch)
    one.gateway.apply(identity("w-1"))
    one.see()
    one.gateway.down = True
    with pytest.raises(ApiError):
        one.lists.run_once()
    one.gateway.down = False
    one.lists.run_once()
    assert (one.data(ADDRESS_LIST), waited) == ({"w-1": "w-1"}, [])


def test_an_object_without_a_spec_does_not_break_the_watch(one: Lists) -> None:
    one.caches[IDENTITIES]._notify({"metadata": {"name": "ek-w-1"}})
