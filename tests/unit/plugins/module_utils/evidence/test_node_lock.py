# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking the lock, with a register computed in software; the same against a TPM is in tests/component."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import NodeLockError, Refusal, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_records
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import (
    Hooks,
    NodeLock,
    NodeLockPaths,
    exclusive,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

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
    return NodeLockPaths(
        directory=tmp_path / "run", firmware_log=tmp_path / "firmware", userspace_log=tmp_path / "measure.log"
    )


@pytest.fixture
def tpm():
    return Register()


def test_first_caller_wins_and_the_second_finds_it_locked(tpm, paths):
    first, second = (NodeLock(tpm, paths=paths).acquire(CLUSTER) for _unused in range(2))
    assert [first.won, second.won] == [True, False]
    assert [first.marker_written, second.marker_written] == [True, False]
    assert second.reading.cluster_id == CLUSTER
    assert tpm.events == 1
    assert CLUSTER.hex() == paths.marker.read_text().strip()


def test_another_cluster_is_refused(tpm, paths):
    NodeLock(tpm, paths=paths).acquire(CLUSTER)
    with pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths).acquire(OTHER)
    assert caught.value.code == "NODELOCK_OTHER_CLUSTER"
    assert tpm.events == 1


def test_a_foreign_event_is_refused_and_nothing_is_written(tpm, paths):
    tpm.pcr_event(15, b"somebody else")
    with pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths).acquire(CLUSTER)
    assert caught.value.code == "NODELOCK_FOREIGN"
    assert not paths.log.exists()
    assert not paths.marker.exists()


def test_an_extension_that_did_not_arrive_is_noticed(tpm, paths):
    tpm.pcr_event = lambda _index, _data: {}
    with pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths).acquire(CLUSTER)
    assert caught.value.code == "NODELOCK_FOREIGN"
    assert not paths.marker.exists()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_cluster_id_of_another_size_is_refused(tpm, paths, size):
    with pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths).acquire(bytes(size))
    assert caught.value.code == "NODELOCK_CLUSTER_ID_MALFORMED"


@pytest.mark.parametrize(
    ("step", "state_after"),
    [
        pytest.param("record", LockState.UNLOCKED, id="killed before the record"),
        pytest.param("extend", LockState.UNLOCKED, id="killed between record and extension"),
        pytest.param("read back", LockState.LOCKED, id="killed before reading back"),
        pytest.param("marker", LockState.LOCKED, id="killed before the marker"),
    ],
)
def test_killed_between_two_steps_the_next_call_ends_locked_by_one_event(tpm, paths, step, state_after):
    kill_before(step, tpm, paths)
    assert NodeLock(tpm, paths=paths).read().state == state_after
    again = NodeLock(tpm, paths=paths).acquire(CLUSTER)
    assert again.won == (state_after is LockState.UNLOCKED)
    assert tpm.events == 1
    assert paths.marker.exists()
    assert paths.log.read_bytes().count(b"\x1e") == 1


def kill_before(step, tpm, paths):
    """Acquire and be killed just before ``step``."""

    def die(name):
        if name == step:
            raise KilledError

    with pytest.raises(KilledError):
        NodeLock(tpm, paths=paths, hooks=Hooks(before=die)).acquire(CLUSTER)


def test_an_intent_that_never_happened_does_not_bind_to_its_cluster(tpm, paths):
    kill_before("extend", tpm, paths)
    assert NodeLock(tpm, paths=paths).acquire(OTHER).reading.cluster_id == OTHER


def test_an_intent_does_not_explain_a_foreign_event(tpm, paths):
    kill_before("extend", tpm, paths)
    tpm.pcr_event(15, b"somebody else")
    assert NodeLock(tpm, paths=paths).read().state is LockState.FOREIGN


def test_reset_of_the_machine_unlocks_even_if_the_old_record_stayed(tpm, paths):
    NodeLock(tpm, paths=paths).acquire(CLUSTER)
    assert NodeLock(Register(), paths=paths).read().state is LockState.UNLOCKED


def test_what_was_logged_before_stays_in_the_log(tpm, paths):
    tpm.pcr_event(15, b"node-configuration:1")
    paths.directory.mkdir()
    digest = hashlib.sha256(b"node-configuration:1").digest()
    body = {
        "pcr": 15,
        "digests": [{"hashAlg": "sha256", "digest": digest.hex()}],
        "content": {"eventType": "node-configuration", "string": "node-configuration:1"},
    }
    record = b"\x1e" + json.dumps(body).encode() + b"\n"
    paths.log.write_bytes(record)
    NodeLock(tpm, paths=paths).acquire(CLUSTER)
    assert paths.log.read_bytes().startswith(record)
    assert NodeLock(tpm, paths=paths).read().cluster_id == CLUSTER


@pytest.mark.parametrize("register", [16, 17, 23, 24, -1])
def test_a_register_that_cannot_hold_the_lock_is_refused_before_anything_is_read(paths, register):
    with pytest.raises(Refusal) as caught:
        NodeLock(None, paths=paths, register=register)
    assert caught.value.code == "NODELOCK_REGISTER_RESETTABLE"
    assert str(register) in caught.value.message


class Impatient:
    """A clock that goes on only while somebody sleeps, half a minute each time."""

    def __init__(self):
        self.elapsed = 0.0

    def monotonic(self):
        return self.elapsed

    def sleep(self, _seconds):
        self.elapsed += 30


def test_a_lock_file_that_is_held_is_told(tpm, paths):
    """After thirty seconds of the clock that it was given, and not before."""
    clock = Impatient()
    with exclusive(paths, clock=Impatient()), pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths, clock=clock).read()
    assert (caught.value.code, clock.elapsed) == ("NODELOCK_BUSY", 60)


def test_production_waits_on_the_clock_of_the_system_below_run(tpm):
    lock = NodeLock(tpm)
    assert isinstance(lock._clock, SystemClock)
    assert lock._paths == NodeLockPaths()


def test_only_root_reads_the_log_and_everybody_sees_the_marker(tpm, paths):
    deep = replace(paths, directory=paths.directory / "deeper")
    NodeLock(tpm, paths=deep).acquire(CLUSTER)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (deep.directory, *deep.directory.iterdir())}
    assert modes == {"deeper": 0o711, "nodelock.lock": 0o600, "nodelock.log": 0o600, "locked": 0o644}
    assert deep.marker.read_bytes() == CLUSTER.hex().encode() + b"\n"


def test_a_lock_file_that_leads_elsewhere_is_refused(tpm, paths, tmp_path):
    paths.directory.mkdir()
    paths.lock_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemFault) as caught:
        NodeLock(tpm, paths=paths).read()
    assert caught.value.code == "FILE_UNUSABLE"


def test_the_firmware_s_log_is_read_where_there_is_one(tpm, paths):
    paths.firmware_log.write_bytes(b"no log")
    with pytest.raises(Refusal) as caught:
        NodeLock(tpm, paths=paths).read()
    assert caught.value.code == "EVENT_LOG_MALFORMED"


def test_the_record_names_cluster_and_digests_of_every_bank(tpm, paths):
    NodeLock(tpm, paths=paths).acquire(CLUSTER)
    (record,) = parse_records(paths.log.read_bytes(), "log")
    assert (record.pcr, record.kind, record.text) == (15, "nodelock", CLUSTER.hex())
    assert sorted(len(digest) for digest in record.digests.values()) == [32, 48, 64]


def test_value_is_the_ancestors(tpm, paths):
    """Constellation's value for this cluster id, computed independently and read back from a TPM."""
    cluster_id = bytes.fromhex("128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6")
    NodeLock(tpm, paths=paths).acquire(cluster_id)
    assert tpm.value.hex() == "23400370357e846478cce7cc0c76cdfe4da077cc57b36dee0f665ede2c8b3f2f"


def test_a_measured_site_stands_before_the_lock_and_the_verifier_reads_both(tpm, paths):
    lock = NodeLock(tpm, paths=paths)
    assert lock.measure("the site") is True
    assert (lock.read().state, lock.read().source) == (LockState.UNLOCKED, "the site")
    assert lock.measure("the site") is False
    lock.acquire(CLUSTER)
    reading = lock.read()
    assert (reading.state, reading.cluster_id, reading.source) == (LockState.LOCKED, CLUSTER, "the site")
    assert lock.measure("the site") is False
    assert [record.kind for record in parse_records(paths.log.read_bytes(), "log")] == ["source", "nodelock"]
    assert tpm.events == 2


def test_a_boot_measures_one_site(tpm, paths):
    lock = NodeLock(tpm, paths=paths)
    lock.measure("the site")
    with pytest.raises(NodeLockError) as caught:
        lock.measure("another")
    assert (Coded(caught.value), tpm.events) == ("SOURCE_TOO_LATE: a boot that runs one commit", 1)


def test_a_locked_machine_measures_no_site_any_more(tpm, paths):
    lock = NodeLock(tpm, paths=paths)
    lock.acquire(CLUSTER)
    with pytest.raises(NodeLockError) as caught:
        lock.measure("the site")
    assert Coded(caught.value) == "SOURCE_TOO_LATE: a machine that is not locked before"
    assert (lock.read().source, tpm.events) == ("", 1)


def test_a_foreign_register_measures_no_site(tpm, paths):
    tpm.pcr_event(15, b"somebody")
    with pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths).measure("the site")
    assert caught.value.code == "NODELOCK_FOREIGN"


def test_a_measurement_that_did_not_arrive_is_noticed(tpm, paths):
    tpm.pcr_event = lambda _index, _data: {}
    with pytest.raises(NodeLockError) as caught:
        NodeLock(tpm, paths=paths).measure("the site")
    assert caught.value.code == "NODELOCK_FOREIGN"


@pytest.mark.parametrize("step", ["record", "extend", "read back"])
def test_a_measurement_that_was_killed_is_made_once_by_the_next(tpm, paths, step):
    def die(reached):
        if reached == step:
            raise KilledError

    with pytest.raises(KilledError):
        NodeLock(tpm, paths=paths, hooks=Hooks(before=die)).measure("the site")
    lock = NodeLock(tpm, paths=paths)
    lock.measure("the site")
    assert (lock.read().source, tpm.events) == ("the site", 1)


def test_a_site_that_was_written_and_never_measured_does_not_stand_in_the_way_of_the_lock(tpm, paths):
    def die(reached):
        if reached == "extend":
            raise KilledError

    with pytest.raises(KilledError):
        NodeLock(tpm, paths=paths, hooks=Hooks(before=die)).measure("the site")
    lock = NodeLock(tpm, paths=paths)
    lock.acquire(CLUSTER)
    assert (lock.read().state, lock.read().source) == (LockState.LOCKED, "")


def test_a_locked_register_says_what_it_held_before(tpm, paths):
    """Also with what systemd, and the site's measurement, put into it before and after the lock."""
    machine = NodeLock(tpm, paths=paths)
    _systemd(tpm, paths, "machine-id:1")
    machine.measure("https://site@0123")
    unlocked = tpm.value
    machine.acquire(CLUSTER)
    assert machine.value_before_lock() == unlocked
    _systemd(tpm, paths, "cryptsetup:later")
    assert machine.value_before_lock() == unlocked


@pytest.mark.parametrize("foreign", [False, True], ids=["unlocked", "with a foreign event"])
def test_a_register_that_is_not_locked_or_not_explained_says_nothing(tpm, paths, foreign):
    machine = NodeLock(tpm, paths=paths)
    if foreign:
        machine.acquire(CLUSTER)
        tpm.pcr_event(15, b"somebody else")
    with pytest.raises(NodeLockError) as caught:
        machine.value_before_lock()
    assert caught.value.code == "NODELOCK_NOT_HELD"


def _systemd(tpm, paths, text):
    digest = tpm.pcr_event(15, text.encode())[0x0B].hex()
    record = {
        "pcr": 15,
        "digests": [{"hashAlg": "sha256", "digest": digest}],
        "content_type": "systemd",
        "content": {"eventType": text.partition(":")[0], "string": text},
    }
    with paths.userspace_log.open("a") as log:
        log.write("\x1e" + json.dumps(record) + "\n")
