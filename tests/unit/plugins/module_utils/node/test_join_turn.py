# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turn to join in the hands of a playbook: taken, renewed, given back, and never taken from who joins."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import Turn, take_turn
from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_turn import end_turn, hold_turn
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

HOLDER = "rotate-encryption-key"


class Leases:
    """The part of kubectl that is asked."""

    def __init__(self):
        self.lease = None
        self.writes = 0

    def read_one(self, kind, name, namespace):
        assert (kind, name, namespace) == ("lease.coordination.k8s.io", "attested-control-plane-join", "kube-system")
        return () if self.lease is None else (self.lease,)

    def create(self, document):
        assert self.lease is None
        self._write(document)

    def replace(self, document):
        assert document["metadata"]["resourceVersion"] == str(self.writes)
        self._write(document)

    def _write(self, document):
        self.writes += 1
        self.lease = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.writes)}}

    @property
    def holder(self):
        return self.lease["spec"].get("holderIdentity", "")


@pytest.fixture
def clock():
    return FakeClock()


def test_it_is_taken_renewed_and_given_back(clock):
    leases = Leases()
    for _time in range(2):
        hold_turn(leases, holder=HOLDER, clock=clock)
        clock.sleep(500)
    assert (leases.holder, leases.writes) == (HOLDER, 2)
    assert end_turn(leases, holder=HOLDER)
    assert leases.holder == ""
    assert not end_turn(leases, holder=HOLDER)


def test_a_machine_that_asks_meanwhile_waits(clock):
    leases = Leases()
    hold_turn(leases, holder=HOLDER, clock=clock)
    with pytest.raises(Refusal) as caught:
        take_turn(Turn.parse(leases.lease), identity="ek-1", now=clock.now())
    assert caught.value.code == "CONTROL_PLANE_JOIN_BUSY"


def test_it_is_not_taken_from_a_control_plane_that_joins(clock):
    leases = Leases()
    hold_turn(leases, holder="ek-1", clock=clock)
    with pytest.raises(Refusal) as caught:
        hold_turn(leases, holder=HOLDER, clock=clock)
    assert caught.value.code == "CONTROL_PLANE_JOIN_BUSY"
    assert not end_turn(leases, holder=HOLDER)
    clock.sleep(601)
    hold_turn(leases, holder=HOLDER, clock=clock)
    assert leases.holder == HOLDER


def test_check_mode_writes_nothing(clock):
    leases = Leases()
    hold_turn(leases, holder=HOLDER, clock=clock, check_mode=True)
    assert leases.lease is None
    hold_turn(leases, holder=HOLDER, clock=clock)
    assert end_turn(leases, holder=HOLDER, check_mode=True)
    assert leases.holder == HOLDER
