# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking the lock, with a register computed in software; the same against a TPM is in tests/component."""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import NodeLockError
from ansible_collections.attested.kubernetes.plugins.module_utils.nodelock import (
    Hooks,
    NodeLock,
    NodeLockPaths,
    State,
    acquire,
    read_state,
)

CLUSTER = bytes(range(32))
OTHER = bytes(range(32, 64))


class Register:
    """A TPM's register 15 by its rules."""

    def __init__(self):
        self.value = bytes(32)
        self.events = 0

    def pcr_read(self, indices):
        return {index: self.value if index == 15 else bytes(32) for index in indices}

    def pcr_event(self, index, data):
        assert index == 15
        self.events += 1
        digest = hashlib.sha256(data).digest()
        self.value = hashlib.sha256(self.value + digest).digest()
        return {0x0B: digest}


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@pytest.fixture
def paths(tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("1b0e-7\n")
    return NodeLockPaths(directory=tmp_path / "run", userspace_log=tmp_path / "measure.log", boot_id=boot_id)


@pytest.fixture
def tpm():
    return Register()


def test_first_caller_wins_and_the_second_finds_it_locked(tpm, paths):
    first, second = (acquire(tpm, CLUSTER, paths=paths) for _ in range(2))
    assert [first.won, second.won] == [True, False]
    assert [first.marker_written, second.marker_written] == [True, False]
    assert second.reading.cluster_id == CLUSTER
    assert tpm.events == 1
    assert CLUSTER.hex() == paths.marker.read_text().strip()


def test_another_cluster_is_refused(tpm, paths):
    acquire(tpm, CLUSTER, paths=paths)
    with pytest.raises(NodeLockError) as caught:
        acquire(tpm, OTHER, paths=paths)
    assert caught.value.code == "NODELOCK_OTHER_CLUSTER"
    assert tpm.events == 1


def test_a_foreign_event_is_refused_and_nothing_is_written(tpm, paths):
    tpm.pcr_event(15, b"somebody else")
    with pytest.raises(NodeLockError) as caught:
        acquire(tpm, CLUSTER, paths=paths)
    assert caught.value.code == "NODELOCK_FOREIGN"
    assert not paths.log.exists()
    assert not paths.marker.exists()


def test_an_extension_that_did_not_arrive_is_noticed(tpm, paths):
    tpm.pcr_event = lambda _index, _data: {}
    with pytest.raises(NodeLockError) as caught:
        acquire(tpm, CLUSTER, paths=paths)
    assert caught.value.code == "NODELOCK_FOREIGN"
    assert not paths.marker.exists()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_cluster_id_of_another_size_is_refused(tpm, paths, size):
    with pytest.raises(NodeLockError) as caught:
        acquire(tpm, bytes(size), paths=paths)
    assert caught.value.code == "NODELOCK_CLUSTER_ID_MALFORMED"


@pytest.mark.parametrize(
    ("step", "state_after"),
    [
        pytest.param("record", State.UNLOCKED, id="killed before the record"),
        pytest.param("extend", State.UNLOCKED, id="killed between record and extension"),
        pytest.param("read back", State.LOCKED, id="killed after the extension"),
        pytest.param("marker", State.LOCKED, id="killed before the marker"),
    ],
)
def test_killed_between_two_steps_the_next_call_ends_locked_by_one_event(tpm, paths, step, state_after):
    def die(name):
        if name == step:
            raise KilledError

    with pytest.raises(KilledError):
        NodeLock(tpm, paths=paths, hooks=Hooks(before=die)).acquire(CLUSTER)
    assert state_after == read_state(tpm, paths).state
    again = acquire(tpm, CLUSTER, paths=paths)
    assert (state_after is State.UNLOCKED) == again.won
    assert tpm.events == 1
    assert paths.marker.exists()


def test_an_intent_that_never_happened_does_not_bind_to_its_cluster(tpm, paths):
    def die(name):
        if name == "extend":
            raise KilledError

    with pytest.raises(KilledError):
        NodeLock(tpm, paths=paths, hooks=Hooks(before=die)).acquire(CLUSTER)
    assert acquire(tpm, OTHER, paths=paths).reading.cluster_id == OTHER


def test_reset_of_the_machine_unlocks_even_if_the_old_record_stayed(tpm, paths):
    acquire(tpm, CLUSTER, paths=paths)
    assert read_state(Register(), paths).state == State.UNLOCKED


def test_register_above_15_is_refused_before_anything_is_read(paths):
    with pytest.raises(NodeLockError) as caught:
        NodeLock(None, paths=paths, index=16)
    assert caught.value.code == "NODELOCK_REGISTER_RESETTABLE"


def test_read_takes_the_lock_file(tpm, paths):
    assert NodeLock(tpm, paths=paths).read().state == State.UNLOCKED
    assert paths.lock_file.exists()
