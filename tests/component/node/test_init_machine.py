# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The init of a machine with a real TPM, lock and key store: keys, lock, playbook, and every way in between."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.wrap import KeyStore
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, ClaimFile, Contender, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.init_machine import MachineFounder, TpmKeeping
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import PlaybookSettings, RunnerPlaybooks
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import initiate
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import (
    Failure,
    Success,
    parse_response,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.init_bed import InitBed, running
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm


class Told:
    """Playbooks that do what a test says, and remember their orders."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {"kubeconfig": "kind: Config"}
        self.orders: list[Any] = []

    def run(self, order: Any, _listener: Any) -> dict[str, Any]:
        self.orders.append(order)
        return self.result


class Site:
    """One machine with its TPM booted, its lock, its key store; an admin beside it."""

    def __init__(self, swtpm: Swtpm, opened: Opened, root: Path) -> None:
        self.swtpm, self.opened, self.root = swtpm, opened, root
        recorded = boots.load("deb13-base")
        with self.machine() as tpm:
            replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
        logs = root / "logs"
        logs.mkdir()
        (logs / "firmware").write_bytes(recorded.firmware)
        (logs / "userspace").write_bytes(recorded.userspace)
        self.paths = NodeLockPaths(
            directory=root / "run", firmware_log=logs / "firmware", userspace_log=logs / "userspace"
        )
        self.bed = InitBed(attester=self.attester, boot=recorded)
        self.store = KeyStore(KeyPaths(rest=root / "rest", opened=root / "opened"), require_memory=lambda _path: None)
        self.race = Race(self, cluster_id=self.bed.cluster_id, claims=ClaimFile(root / "run" / "claim.json"))
        self.keeping = TpmKeeping(self.store, open_machine=self.machine)
        self.playbooks: Any = Told()
        self.stopped = 0
        self.bed.founding.found = self.found  # type: ignore[method-assign]

    @contextmanager
    def machine(self) -> Iterator[Any]:
        with self.opened(self.swtpm, timeout_seconds=60) as tpm:
            yield tpm

    @contextmanager
    def attester(self) -> Iterator[Attester]:
        with self.machine() as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    def read(self) -> Any:
        with self.machine() as tpm:
            return NodeLock(tpm, paths=self.paths).read()

    def acquire(self, cluster_id: bytes) -> Any:
        with self.machine() as tpm:
            taken = NodeLock(tpm, paths=self.paths).acquire(cluster_id)
        self.bed.logs = replace(self.bed.logs, nodelock=self.paths.log.read_bytes())
        return taken

    def stop(self) -> None:
        self.stopped += 1

    def found(self, *given: Any, **known: Any) -> Success:
        settings = PlaybookSettings(
            playbook=self.root / "play.yml", inventory=self.root / "hosts.yml", node_name="cp-1"
        )
        founder = MachineFounder(
            settings, race=self.race, keeping=self.keeping, playbooks=self.playbooks, stop_others=self.stop
        )
        return founder.found(*given, **known)

    def keys(self) -> list[bool]:
        return [path.exists() for path in self.keeping.files()]

    async def init(self, **changes: Any) -> Any:
        async with running(self.bed) as machine:
            said = initiate(machine.endpoint, self.bed.wish(**changes), self.bed.question())
            return [one async for one in said][-1]

    async def code(self, **changes: Any) -> str:
        with pytest.raises(AttestedError) as caught:
            await self.init(**changes)
        return caught.value.code


@pytest.fixture
def site(swtpm: Swtpm, opened: Opened, tmp_path: Path) -> Site:
    return Site(swtpm, opened, tmp_path)


async def test_keys_lock_and_the_real_runner_in_one_init_from_the_admins_machine(site: Site) -> None:
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (site.root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"hosts": {"localhost": local}}}))
    tell = {"name": "Tell", "ansible.builtin.set_stats": {"data": {"kubeconfig": "{{ attested_cluster_name }}"}}}
    play = {"name": "Make the cluster", "hosts": "nodes", "gather_facts": False, "tasks": [tell]}
    (site.root / "play.yml").write_text(yaml.safe_dump([play]))
    site.playbooks = RunnerPlaybooks(site.root / "private", require_memory=lambda _path: None)
    assert await site.init() == Success(kubeconfig=b"prod", cluster_id=site.bed.cluster_id)
    reading = site.read()
    assert (reading.state, reading.cluster_id) == (LockState.LOCKED, site.bed.cluster_id)
    assert (site.keys(), site.stopped, site.store.opened()) == ([True, True], 1, site.bed.bundle)
    assert list((site.root / "private").iterdir()) == []


async def test_after_a_failed_playbook_the_same_request_goes_on_and_another_is_refused(site: Site) -> None:
    site.playbooks.result = {}
    assert await site.code() == "PLAYBOOK_FAILED"
    assert await site.code(kubernetes_version="1.36.0") == "INIT_REQUEST_DIFFERS"
    site.playbooks.result = {"kubeconfig": "kind: Config"}
    assert isinstance(await site.init(), Success)
    assert site.paths.log.read_bytes().count(b"\x1e") == 1
    assert [order.variables["attested_kubernetes_version"] for order in site.playbooks.orders] == ["1.35.4"] * 2


async def test_after_a_join_nothing_of_init_is_left(site: Site) -> None:
    with site.race.turn(Claim(Contender.JOIN)) as turn:
        turn.take()
    assert await site.code() == "RACE_LOST"
    assert (site.keys(), site.playbooks.orders, site.stopped) == ([False, False], [], 0)


def found(site: Site) -> str:
    """Hand over to the founder without a network; return the code of its refusal."""
    verified = site.bed.judged()
    site.bed.desk.begin(site.bed.asked(site.bed.order(verified), verified))
    ((_handle, job),) = site.bed.desk._handles.items()
    job.follow(1_000_000, wait_seconds=120)
    failures = [one for one in map(parse_response, job.follow(0, wait_seconds=0)[0]) if isinstance(one, Failure)]
    return failures[0].code


def test_somebody_outside_takes_the_lock_after_the_keys_and_they_go_again(site: Site) -> None:
    write = site.keeping.write

    def and_then_a_playbook(*given: Any, **known: Any) -> None:
        write(*given, **known)
        assert site.keys() == [True, True]
        site.acquire(site.bed.cluster_id)

    site.keeping.write = and_then_a_playbook  # type: ignore[method-assign]
    assert found(site) == "RACE_LOST"
    assert (site.keys(), site.playbooks.orders) == ([False, False], [])


def test_keys_that_cannot_be_kept_leave_the_race_open(site: Site) -> None:
    def on_a_full_disk(*_given: Any, **_known: Any) -> None:
        raise SystemFault("disk full", reason=Reason.FILE_UNUSABLE)

    site.keeping.write = on_a_full_disk  # type: ignore[method-assign]
    assert found(site) == "FILE_UNUSABLE"
    assert (site.read().state, site.race.winner(), site.keys()) == (LockState.UNLOCKED, None, [False, False])


async def test_a_locked_machine_without_its_keys_is_named(site: Site) -> None:
    site.playbooks.result = {}
    assert await site.code() == "PLAYBOOK_FAILED"
    site.store.paths.opened_file.unlink()
    assert await site.code() == "STATE_CHANGED"
