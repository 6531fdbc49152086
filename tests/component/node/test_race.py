# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Init and join started together 200 times over a real TPM: one winner, one lock event, no trace of the loser."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import NodeView
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import Worker
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, ClaimFile, Contender, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import EventLogPaths, NodeConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_claim import JoinContender
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import NodeTicket, Parts
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock, FakePrograms, pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

RACES = 200
BESIDE_A_PLAYBOOK = 5
CLUSTER = bytes.fromhex("128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6")
ONE_EVENT = "23400370357e846478cce7cc0c76cdfe4da077cc57b36dee0f665ede2c8b3f2f"  # computed independently
REQUEST = Claim(Contender.INIT, hashlib.sha256(b"request").hexdigest())
PLAYBOOK = Path(__file__).parents[1] / "nodelock" / "holder.py"


class Tickets:
    """Join services that answer at the second time; what they gave lies in a file, as in the ticket store."""

    def __init__(self, root: Path, *, pause: float) -> None:
        self._path = root / "run" / "tickets"
        self._pause = pause
        self._asked = 0
        certificate, key = pair("w-1")
        self._credential = KubeletCredential(certificate=certificate, key=key)

    def fetch(self, *, disk_id: str | None) -> NodeTicket:
        del disk_id
        self._asked += 1
        if self._asked == 1:
            raise TransportError("nobody there", reason=Reason.PEER_UNREACHABLE, retryable=True)
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text("ticket")
        return NodeTicket(
            role="worker",
            disk_id="7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69",
            kubernetes_version="1.35.4",
            api_endpoint="api:6443",
            cluster_ca=b"ca",
            credential=self._credential,
        )

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)

    def pause(self, error: AttestedError) -> float | None:
        return self._pause if error.reason is Reason.PEER_UNREACHABLE else None


class Api:
    """The cluster's view of the node: it is there."""

    def __init__(self, boot: Path) -> None:
        self._boot = boot

    def node(self, name: str) -> NodeView:
        return NodeView(name=name, boot_id=self._boot.read_text().strip(), ready=False)


@dataclass(slots=True)
class RealLock:
    """The node lock over the real TPM, opened for each use as on a node."""

    swtpm: Swtpm
    opened: Opened
    root: Path
    paths: NodeLockPaths = field(init=False)

    def __post_init__(self) -> None:
        run = self.root / "run" / "attested"
        self.paths = NodeLockPaths(directory=run, firmware_log=run / "none", userspace_log=run / "none")

    def read(self):
        with self.opened(self.swtpm, timeout_seconds=60) as tpm:
            return NodeLock(tpm, paths=self.paths).read()

    def acquire(self, cluster_id):
        with self.opened(self.swtpm, timeout_seconds=60) as tpm:
            return NodeLock(tpm, paths=self.paths).acquire(cluster_id)


@dataclass(slots=True)
class Bed:
    """One boot of one machine, with both contenders."""

    lock: RealLock
    race: Race
    join: JoinContender
    journal: NodeJournal
    root: Path
    outcomes: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    def run_init(self) -> None:
        """Take the lock as the init server does: prepare, lock, and only then tell the other to stop."""
        try:
            with self.race.turn(REQUEST) as turn:
                self.keys.write_text("sealed")
                turn.take()
        except AttestedError as error:
            self.outcomes["init"] = error.code
            return
        self.join.stop()
        self.outcomes["init"] = "won"

    def run_join(self) -> None:
        try:
            self.join.run()
        except AttestedError as error:
            self.outcomes["join"] = error.code
        else:
            self.outcomes["join"] = "won"

    def traces_of_join(self) -> list[str]:
        """What a join leaves, wherever it got to."""
        files = ("run/tickets", "node.json", "etc/kubernetes/kubelet.conf", "var/lib/kubelet")
        return [name for name in files if (self.root / name).exists()]


@pytest.fixture
def bed(swtpm: Swtpm, opened: Opened, tmp_path: Path) -> Callable[..., Bed]:
    def boot(number: int, *, pause: float) -> Bed:
        swtpm.reset()
        root = tmp_path / str(number)
        root.mkdir()
        boot_id = root / "boot_id"
        boot_id.write_text(f"boot-{number}\n")
        clock = SystemClock()
        machine = Machine(runner=FakePrograms(root), clock=FakeClock(), paths=KubernetesPaths(root=root))
        worker = Worker(NodeSpec(name="w-1", node_ip="10.0.0.21"), machine, reader=Api(boot_id))
        lock = RealLock(swtpm, opened, root)
        race = Race(lock, cluster_id=CLUSTER, claims=ClaimFile(root / "run" / "attested" / "claim.json"))
        journal = NodeJournal(root / "node.json", clock=clock)
        config = NodeConfig(
            name="w-1",
            cluster_name="prod",
            cluster_id=CLUSTER,
            endpoints=(("10.0.0.11", 9090),),
            join_ca=b"",
            tcti="",
            logs=EventLogPaths(firmware=root / "none", userspace=root / "none"),
        )
        parts = Parts(
            config=config,
            machine=machine,
            joiner=worker,
            lock=lock,
            tickets=Tickets(root, pause=pause),
            journal=journal,
            marker=lock.paths.marker,
            boot_id=boot_id,
            confirmed=root / "run" / "attested" / "joined",
        )
        return Bed(lock, race, JoinContender(parts, race), journal, root)

    return boot


def together(*works: Callable[[], None]) -> None:
    """Run all of them, from one moment on."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], None]) -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=begin, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_event(bed: Bed) -> None:
    with bed.lock.opened(bed.lock.swtpm) as tpm:
        assert tpm.pcr_read([15])[15].hex() == ONE_EVENT
    assert bed.lock.paths.log.read_bytes().count(b"\x1e") == 1


def test_200_races_have_one_winner_each_and_the_loser_leaves_no_trace(
    bed: Callable[..., Bed], capsys: pytest.CaptureFixture[str]
) -> None:
    spread, winners = random.Random(5), Counter()
    for number in range(RACES):
        one = bed(number, pause=spread.uniform(0.0, 0.02))
        wait = spread.uniform(0.0, 0.15)
        together(lambda one=one, wait=wait: (time.sleep(wait), one.run_init()), one.run_join)
        assert sorted(one.outcomes.values()) == ["RACE_LOST", "won"], one.outcomes
        one_event(one)
        if one.outcomes["init"] == "won":
            assert (one.race.winner(), one.traces_of_join()) == (REQUEST, [])
        else:
            assert (one.race.winner(), one.keys.exists()) == (Claim(Contender.JOIN), False)
            assert one.journal.load().phase is NodePhase.JOINED
        winners[one.race.winner().contender.value] += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{RACES} races over a real TPM: {dict(winners)}, one event each\n")
    assert set(winners) == {"init", "join"}, "one of the two never won: the race is none"


def test_a_playbook_beside_the_race_wins_or_loses_like_the_others(bed: Callable[..., Bed]) -> None:
    for number in range(BESIDE_A_PLAYBOOK):
        one = bed(number, pause=0.001)
        said: list[str] = []
        together(one.run_join, partial(run_playbook, one, said))
        assert sorted([*said, one.outcomes["join"]]) in (["RACE_LOST", "won"], ["lost", "won"])
        one_event(one)
        if one.outcomes["join"] == "RACE_LOST":
            assert one.traces_of_join() == []
            assert one.race.winner() is None


def run_playbook(one: Bed, said: list[str]) -> None:
    """Lock from another process, as a playbook does, and note what it says."""
    arguments = [one.lock.swtpm.tcti, str(one.lock.paths.directory), CLUSTER.hex(), "-"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    one.lock.paths.directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(PLAYBOOK), *arguments],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        check=True,
        timeout=120,
    )
    said.append(done.stdout.strip())
