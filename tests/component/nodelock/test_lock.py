# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock against a real TPM: races, restarts, kills, and the machine's reset."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import NodeLockError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_attestation_key
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest

CLUSTER = bytes.fromhex("128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6")
OTHER = bytes.fromhex("1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9")
# Constellation's values for CLUSTER, computed independently
ONE_EVENT = {"sha256": "23400370357e846478cce7cc0c76cdfe4da077cc57b36dee0f665ede2c8b3f2f"}
HOLDER = Path(__file__).with_name("holder.py")
THREADS = 64


@pytest.fixture
def paths(tmp_path):
    directory = tmp_path / "run"
    return NodeLockPaths(directory=directory, firmware_log=directory / "none", userspace_log=directory / "none")


@pytest.fixture
def lock(swtpm, opened, paths):
    """Call ``lock(method, *arguments)`` on a node lock with a connection of its own."""

    def call(method, *arguments):
        with opened(swtpm, timeout_seconds=60) as tpm:
            return getattr(NodeLock(tpm, paths=paths), method)(*arguments)

    return call


@pytest.fixture
def start(swtpm, paths):
    """Start processes that take the lock; all are ended at the end."""
    running = []

    def begin(step="-", cluster_id=CLUSTER):
        arguments = [swtpm.tcti, str(paths.directory), cluster_id.hex(), step]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        paths.directory.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, str(HOLDER), *arguments], stdout=subprocess.PIPE, text=True, env=environment
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def quoted(swtpm, opened):
    """Return the digest over register 15 that the TPM signs."""
    with opened(swtpm) as tpm:
        quote = tpm.quote(load_attestation_key(tpm), b"nonce", [15])
    return Attest.parse(quote.attest).pcr_digest


def test_64_threads_race_and_the_quote_shows_one_event(swtpm, opened, lock):
    winners, barrier = [], threading.Barrier(THREADS)

    def contend():
        barrier.wait()
        winners.append(lock("acquire", CLUSTER).won)

    threads = [threading.Thread(target=contend) for _number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(winners) == [False] * (THREADS - 1) + [True]
    assert quoted(swtpm, opened) == hashlib.sha256(bytes.fromhex(ONE_EVENT["sha256"])).digest()


def test_two_processes_race_and_the_quote_shows_one_event(swtpm, opened, start):
    said = sorted(process.communicate(timeout=900)[0].strip() for process in [start(), start()])
    assert said == ["lost", "won"]
    assert quoted(swtpm, opened) == hashlib.sha256(bytes.fromhex(ONE_EVENT["sha256"])).digest()


def test_two_clusters_race_and_the_loser_is_refused(lock, paths):
    outcomes, barrier = [], threading.Barrier(2)

    def contend(cluster_id):
        barrier.wait()
        try:
            outcomes.append(lock("acquire", cluster_id).reading.cluster_id)
        except NodeLockError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=contend, args=(one,)) for one in (CLUSTER, OTHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "NODELOCK_OTHER_CLUSTER" in outcomes
    assert lock("read").cluster_id in outcomes


def test_it_holds_over_every_process_until_the_machine_is_reset(swtpm, lock, start, paths):
    assert start().communicate(timeout=900)[0].strip() == "won"
    assert [start().communicate(timeout=900)[0].strip() for _again in range(2)] == ["lost", "lost"]
    assert lock("read").state is LockState.LOCKED
    swtpm.reset()
    paths.log.unlink()
    assert lock("read").state is LockState.UNLOCKED


@pytest.mark.parametrize(
    ("step", "state"),
    [
        pytest.param("record", LockState.UNLOCKED, id="before the record"),
        pytest.param("extend", LockState.UNLOCKED, id="before the extension"),
        pytest.param("read back", LockState.LOCKED, id="after the extension"),
        pytest.param("marker", LockState.LOCKED, id="before the marker"),
    ],
)
def test_killed_between_two_steps_the_next_process_ends_with_one_event(swtpm, opened, lock, start, paths, step, state):
    victim = start(step)
    assert victim.stdout.readline().strip() == "stopped"
    victim.send_signal(signal.SIGKILL)
    victim.wait(timeout=900)
    assert lock("read").state is state
    assert start().communicate(timeout=900)[0].strip() == ("won" if state is LockState.UNLOCKED else "lost")
    assert paths.marker.exists()
    assert quoted(swtpm, opened) == hashlib.sha256(bytes.fromhex(ONE_EVENT["sha256"])).digest()


@pytest.mark.parametrize("banks", ["sha256", "sha256,sha384"])
def test_every_bank_gets_the_ancestors_value(swtpms, opened, paths, banks):
    ours = swtpms("banks", banks=banks, certified=False)
    with opened(ours) as tpm:
        NodeLock(tpm, paths=paths).acquire(CLUSTER)
        assert tpm.pcr_read([15])[15].hex() == ONE_EVENT["sha256"]
        if "sha384" in banks:
            assert tpm.pcr_read([15], bank=0x000C)[15].hex() == (
                "894927a8d9fda1b23231f7a1a9505fd67f41cfe6b8cb66e7a15fcc04529aeae2708795d00dbfc191bf1b5d88a97f55d9"
            )


def test_an_event_of_somebody_else_is_foreign(swtpm, opened, lock):
    with opened(swtpm) as tpm:
        tpm.pcr_event(15, b"somebody else")
    with pytest.raises(NodeLockError) as caught:
        lock("acquire", CLUSTER)
    assert caught.value.code == "NODELOCK_FOREIGN"
