# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults before the steps of an upgrade of a control plane and a worker: the same command goes on, and completes it.

An upgrade to another version of Kubernetes is test_kubernetes_upgrade.py. One case is part of `make test` (tests/e2e).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.boundaries import commit
from ansible_collections.attested.kubernetes.tests.support.records import RECORDS, UPGRADES, keep_case
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.striking import FAULTS
from ansible_collections.attested.kubernetes.tests.support.upgrade_faults import (
    NODES,
    PLANE,
    Case,
    Upgrades,
    cases_of,
    is_ready,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_UPGRADES_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

WORDS = ("-e", '{"lab_control_planes": 1, "lab_workers": 1}')


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    with road_through("lab", "init", "node", of="attested-upgrades:127.65.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def upgrades(road: Road) -> Upgrades:
    """Two prepared releases; each case upgrades to the other one."""
    return Upgrades.prepared(road, "even", "odd")


@pytest.mark.parametrize("fault", FAULTS)
def test_an_upgrade_goes_on_after_a_fault_before_each_step(upgrades: Upgrades, fault: str) -> None:
    """Each run is cut off one step after the one before it; the one after the last completes the upgrade."""
    cases, past, began = cases_of(fault), 0, time.monotonic()
    try:
        for past, _case in enumerate(upgrades.fail_and_complete(*cases), 1):
            keep(cases[past - 1], UPGRADES.good, seconds=time.monotonic() - began)
            began = time.monotonic()
    finally:
        if past < len(cases):
            keep(cases[past], "failed", seconds=time.monotonic() - began)
    assert past == len(cases)


def keep(case: Case, outcome: str, *, seconds: float) -> None:
    """Put a case into the record; ``seconds`` since the one before it."""
    told = {"point": f"{case.node}: {case.point}", "fault": case.fault, "outcome": outcome}
    keep_case(RECORDS, {**told, "seconds": round(seconds, 1)}, kind=UPGRADES, commit=commit(), now=datetime.now(UTC))


def test_a_run_afterwards_changes_nothing(road: Road, upgrades: Upgrades) -> None:
    words = upgrades.releases[upgrades.current(PLANE)]
    assert sum(road.play("upgrade", *words).changes().values()) == 0
    wait_for(lambda: all(is_ready(road, name) for name in NODES))
