# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A boot from a real signed repository with the real ansible-runner and the real lock over a register in software."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_records
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node import node_boot
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import parse_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.node_boot import NodeBoot
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import RunnerPlaybooks
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.source.obtain import Machine, Places
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import Installed, parse_measured
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.support.site_repository import BUNDLE, RELEASE, Key, SiteRepository

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTER = bytes(range(32))
NODE = {
    "version": 1,
    "name": "w-1",
    "cluster_name": "prod",
    "cluster_id": CLUSTER.hex(),
    "endpoints": ["10.0.0.11:9090"],
    "join_ca": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
    "tcti": "device:/dev/tpmrm0",
    "logs": {"firmware": "/none", "userspace": "/none"},
}


class Register:
    """A TPM's register 15 by its rules."""

    def __init__(self) -> None:
        self.value = bytes(32)

    def pcr_read(self, indices):
        return dict.fromkeys(indices, self.value)

    def pcr_event(self, index, data):
        self.value = hashlib.sha256(self.value + hashlib.sha256(data).digest()).digest()
        return {index: self.value}


@pytest.fixture
def site(tmp_path: Path) -> SiteRepository:
    return SiteRepository(path=tmp_path / "site", key=Key(directory=tmp_path).made()).made()


@pytest.fixture
def lock(tmp_path: Path) -> NodeLock:
    none = tmp_path / "none"
    return NodeLock(Register(), paths=NodeLockPaths(directory=tmp_path / "run", firmware_log=none, userspace_log=none))


@pytest.fixture
def boot(tmp_path: Path, site: SiteRepository, lock: NodeLock) -> Callable[..., NodeBoot]:
    """Return a boot of a machine by its name, with a play that writes down where it ran."""
    task = {
        "name": "Write down what the site says",
        "ansible.builtin.copy": {
            "dest": str(tmp_path / "played"),
            "content": "{{ inventory_hostname }} {{ attested_node_ip }} {{ ansible_connection }}"
            " {{ ansible_play_hosts_all }}",
            "mode": "0600",
        },
    }
    playbook = tmp_path / "node.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "nodes", "gather_facts": False, "tasks": [task]}]))

    def make(name: str = "w-1") -> NodeBoot:
        source = {"url": site.url, "signers": [site.key.line], "transports": ["file"]}
        content = json.dumps({**NODE, "name": name, "source": source}).encode()
        node = parse_node_config(content)
        assert node.source is not None
        return NodeBoot(
            node=node,
            source=node.source,
            machine=Machine(
                installed=Installed(collection=RELEASE, bundle=BUNDLE), node_config=hashlib.sha256(content).hexdigest()
            ),
            lock=lock,
            playbooks=RunnerPlaybooks(tmp_path / "playbooks", require_memory=lambda _path: None),
            log=Log(io.StringIO(), as_json=True, clock=SystemClock()),
            places=Places(memory=tmp_path / "memory", state=tmp_path / "state"),
            playbook=playbook,
        )

    return make


def test_a_machine_plays_its_site_for_itself_alone(boot, site, tmp_path):
    site.release(
        2,
        {
            "hosts.yml": "nodes:\n  hosts:\n    w-1: {ansible_host: 192.0.2.1}\n    w-2: {}\n",
            "host_vars/w-1/address.yml": "attested_node_ip: 10.0.0.77\n",
        },
    )
    boot().run()
    assert (tmp_path / "played").read_text() == "w-1 10.0.0.77 local ['w-1']"


def test_what_the_site_says_of_becoming_root_is_for_ssh(boot, site, tmp_path):
    """It would be refused: there is no such way."""
    host = {"attested_node_ip": "10.0.0.77", "ansible_become": True, "ansible_become_method": "no_such_way"}
    site.release(2, {"hosts.yml": yaml.safe_dump({"nodes": {"hosts": {"w-1": host}}})})
    boot().run()
    assert (tmp_path / "played").read_text() == "w-1 10.0.0.77 local ['w-1']"


def test_the_commit_stands_in_the_register_before_the_lock(boot, site, lock, tmp_path):
    machine = boot()
    machine.run()
    measured = parse_measured(lock.read().source)
    assert (measured.commit, measured.version, measured.collection) == (site.head, 1, RELEASE)
    assert measured.signer == machine.source.signers[0].fingerprint
    assert measured.node_config == machine.machine.node_config
    lock.acquire(CLUSTER)
    kinds = [record.kind for record in parse_records((tmp_path / "run/nodelock.log").read_bytes(), "log")]
    assert kinds == ["source", "nodelock"]


def test_a_second_start_plays_the_commit_of_the_first(boot, site, lock):
    first = site.head
    boot().run()
    site.release(2)
    lock.acquire(CLUSTER)
    boot().run()
    assert parse_measured(lock.read().source).commit == first


def test_a_site_that_does_not_have_the_machine_is_an_error(boot, tmp_path):
    with pytest.raises(SystemFault) as caught:
        boot("w-9").run()
    assert caught.value.code == "PLAYBOOK_NO_HOST"
    assert not (tmp_path / "played").exists()


def test_a_refused_site_is_neither_measured_nor_played(boot, site, lock, tmp_path):
    site.commit(signed=False)
    with pytest.raises(AttestedError) as caught:
        boot().run()
    assert (caught.value.code, lock.read().source) == ("SOURCE_UNSIGNED", "")
    assert not (tmp_path / "played").exists()
    site.release(2)
    boot().run()
    assert (tmp_path / "played").exists()


def test_a_machine_that_is_locked_already_is_not_played(boot, lock, tmp_path):
    lock.acquire(CLUSTER)
    with pytest.raises(AttestedError) as caught:
        boot().run()
    assert Coded(caught.value) == "SOURCE_TOO_LATE: a machine that is not locked before"
    assert not (tmp_path / "played").exists()


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        pytest.param(Reason.SOURCE_UNREACHABLE, 1, id="a network that may come"),
        pytest.param(Reason.SOURCE_UNSIGNED, 1, id="a repository that may be put right"),
        pytest.param(Reason.SOURCE_TOO_LATE, 78, id="a boot that has measured another"),
        pytest.param(Reason.NODELOCK_FOREIGN, 78, id="a register that nobody explains"),
    ],
)
def test_a_person_is_called_only_where_no_other_start_helps(reason, code):
    assert node_boot.exit_code(SystemFault("x", reason=reason)) == code


def test_a_machine_without_a_source_says_what_to_set(tmp_path, capsys):
    (tmp_path / "node.yml").write_text(json.dumps(NODE))
    assert node_boot.main(["--node-config", str(tmp_path / "node.yml")]) == 78
    assert "CONFIG_INVALID: expected the section source" in capsys.readouterr().err


def test_the_play_is_that_of_the_installed_collection():
    assert node_boot.PLAYBOOK.samefile(Path(__file__).parents[3] / "playbooks" / "node.yml")
    assert yaml.safe_load(node_boot.PLAYBOOK.read_text())[0]["hosts"] == "nodes"
