# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses a profile: counted from the last good evidence, named up to a bound, written only where it changed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import PROFILES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import (
    MAX_NAMED,
    UsageWatcher,
    plan_usage,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock


def profile(name: str = "base", **status: Any) -> dict[str, Any]:
    return {"kind": "MeasurementProfile", "metadata": {"name": name, "resourceVersion": "7"}, "status": status}


def identity(node: str, *, by: str = "base", admission: str = "Approved") -> dict[str, Any]:
    status = {"lastAttestation": {"profile": by}} if by else {}
    return {
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{node}"},
        "spec": {"nodeName": node, "admission": admission},
        "status": status,
    }


def usage(*identities: dict[str, Any]) -> tuple[int, list[str]]:
    (write,) = plan_usage([profile()], identities)
    return write.status["inUseBy"], write.status["nodes"]


@pytest.mark.parametrize(
    ("found", "used"),
    [
        pytest.param([], (0, []), id="by nobody, which is said as well"),
        pytest.param([identity("w-2"), identity("w-1")], (2, ["w-1", "w-2"]), id="by two, in order"),
        pytest.param([identity("w-1", by="other")], (0, []), id="not by who was let in by another one"),
        pytest.param([identity("w-1", by="")], (0, []), id="not by who never attested"),
        pytest.param([identity("w-1", admission="Revoked")], (0, []), id="not by who was revoked since"),
    ],
)
def test_who_uses_a_profile(found: list[dict[str, Any]], used: tuple[int, list[str]]) -> None:
    assert usage(*found) == used


def test_a_large_fleet_is_counted_and_its_first_are_named() -> None:
    count, named = usage(*(identity(f"w-{number:03}") for number in range(500)))
    assert (count, len(named), named[-1]) == (500, MAX_NAMED, "w-019")


def test_what_is_said_already_is_not_written() -> None:
    assert plan_usage([profile(inUseBy=1, nodes=["w-1"])], [identity("w-1")]) == ()
    assert plan_usage([profile(inUseBy=1, nodes=["w-1"])], [identity("w-2")])


# ---- the watcher


@pytest.fixture
def gateway() -> FakeGateway:
    made = FakeGateway(profile("base"), profile("other"))
    for one in (identity("w-1"), identity("w-2", by="other")):
        made.apply(one)
        made._objects["nodeidentities"][one["metadata"]["name"]]["status"] = one["status"]
    return made


def said(gateway: FakeGateway) -> dict[str, Any]:
    return {one["metadata"]["name"]: one["status"] for one in gateway.objects(PROFILES)}


def watcher(gateway: FakeGateway) -> UsageWatcher:
    return UsageWatcher(gateway, gateway, clock=SteppingClock())


def test_each_profile_says_it_and_a_second_look_writes_nothing(gateway: FakeGateway) -> None:
    for _unused in range(2):
        watcher(gateway).run_once()
    assert said(gateway) == {"base": {"inUseBy": 1, "nodes": ["w-1"]}, "other": {"inUseBy": 1, "nodes": ["w-2"]}}
    assert gateway.writes == 2


def test_another_control_plane_may_be_faster(gateway: FakeGateway) -> None:
    def write_first() -> None:
        watcher(gateway).look()

    gateway.before_write = write_first
    watcher(gateway).look()
    assert said(gateway)["base"] == {"inUseBy": 1, "nodes": ["w-1"]}
    assert gateway.writes == 2


def test_without_the_api_it_is_said_so(gateway: FakeGateway) -> None:
    gateway.down = True
    with pytest.raises(ApiError) as caught:
        watcher(gateway).look()
    assert caught.value.reason is Reason.API_UNAVAILABLE


def test_a_round_writes_a_bounded_number() -> None:
    gateway = FakeGateway(*(profile(f"p-{number}") for number in range(50)))
    watcher(gateway).look()
    assert gateway.writes == 20
