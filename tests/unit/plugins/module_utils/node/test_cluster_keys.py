# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first control plane takes the cluster's keys: compare, keep, lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KeyServiceError, NodeLockError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import Acquisition
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import EventLogPaths, NodeConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.node.member import take_keys

CLUSTER = bytes(range(32))
CONFIG = NodeConfig(
    name="cp-1",
    cluster_name="prod",
    cluster_id=CLUSTER,
    endpoints=(),
    join_ca=b"",
    tcti="device:/dev/tpmrm0",
    logs=EventLogPaths(firmware=Path("/f"), userspace=Path("/u")),
)
UNLOCKED_VALUE = b"u" * 32


class Bundle:
    """What take_keys looks at of the cluster's keys."""

    def __init__(self, cluster_id=CLUSTER):
        self.cluster_id = cluster_id


class Machine:
    """TPM, keeper and lock of one boot; ``done`` is what happened, in order."""

    def __init__(self):
        self.reading = LockReading(state=LockState.UNLOCKED)
        self.kept = None
        self.sealed_to = None
        self.done = []

    def pcr_read(self, indices):
        return dict.fromkeys(indices, UNLOCKED_VALUE)

    def write(self, bundle, sealer, *, pcrs):
        del sealer
        changed = self.kept is not bundle
        self.kept, self.sealed_to = bundle, dict(pcrs)
        self.done += ["keep"] * changed
        return changed

    def opened(self):
        return self.kept

    def read(self):
        return self.reading

    def acquire(self, cluster_id):
        won = self.reading.state is LockState.UNLOCKED
        self.done += ["lock"] * won
        self.reading = LockReading(state=LockState.LOCKED, cluster_id=cluster_id)
        return Acquisition(won=won, reading=self.reading)


@pytest.fixture
def machine():
    return Machine()


def take(machine, bundle):
    steps = take_keys(
        bundle, config=CONFIG, tpm=machine, store=machine, sealer=None, lock=machine, judged={4: b"4" * 32}
    )
    return [step.name for step in steps]


def test_keys_are_kept_before_the_lock_under_the_judged_registers_and_the_unlocked_one(machine):
    assert take(machine, Bundle()) == ["keys", "lock"]
    assert machine.done == ["keep", "lock"]
    assert machine.sealed_to == {4: b"4" * 32, 15: UNLOCKED_VALUE}


def test_a_repetition_changes_nothing(machine):
    bundle = Bundle()
    take(machine, bundle)
    assert take(machine, bundle) == []


def test_killed_before_the_lock_the_next_run_locks(machine):
    bundle = Bundle()
    machine.write(bundle, None, pcrs={})
    assert take(machine, bundle) == ["lock"]


def test_keys_of_another_cluster_are_refused_and_nothing_happens(machine):
    with pytest.raises(KeyServiceError) as caught:
        take(machine, Bundle(bytes(32)))
    assert caught.value.code == "CLUSTER_ID_MISMATCH"
    assert machine.done == []


def test_a_locked_machine_without_these_keys_must_reboot_first(machine):
    machine.reading = LockReading(state=LockState.LOCKED, cluster_id=CLUSTER)
    with pytest.raises(KeyServiceError) as caught:
        take(machine, Bundle())
    assert caught.value.code == "STATE_CHANGED"
    assert "Reboot" in caught.value.hint


def test_a_machine_of_another_cluster_is_refused(machine):
    machine.reading = LockReading(state=LockState.LOCKED, cluster_id=bytes(32))
    with pytest.raises(NodeLockError) as caught:
        take(machine, Bundle())
    assert caught.value.code == "NODELOCK_OTHER_CLUSTER"
    assert machine.done == []
