# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node with its lock, join services and API in memory, and a machine in a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import Acquisition
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import NodeView
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import ControlPlaneMember, Worker
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import EventLogPaths, NodeConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import (
    ControlPlaneTicket,
    NodeTicket,
    Parts,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

CLUSTER = bytes(range(32))
DISK = "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69"
CONFIG = NodeConfig(
    name="w-1",
    cluster_name="prod",
    cluster_id=CLUSTER,
    endpoints=(("10.0.0.11", 9090),),
    join_ca=b"",
    tcti="device:/dev/tpmrm0",
    logs=EventLogPaths(firmware=Path("/f"), userspace=Path("/u")),
)


class FakeLock:
    """The register of one boot."""

    def __init__(self, marker):
        self.reading = LockReading(state=LockState.UNLOCKED)
        self.marker = marker
        self.taken = 0

    def read(self):
        return self.reading

    def acquire(self, cluster_id):
        won = self.reading.state is LockState.UNLOCKED
        self.taken += won
        self.reading = LockReading(state=LockState.LOCKED, cluster_id=cluster_id)
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        self.marker.write_text("x")
        return Acquisition(won=won, reading=self.reading, marker_written=True)


class FakeTickets:
    """Join services that give what they are told to give, and remember who asked."""

    def __init__(self, ticket):
        self.ticket = ticket
        self.errors = []
        self.asked = []
        self.discarded = 0

    def fetch(self, *, disk_id):
        self.asked.append(disk_id)
        if self.errors:
            raise self.errors.pop(0)
        return self.ticket

    def discard(self):
        self.discarded += 1

    def pause(self, error):
        return 2.0 if error.reason is Reason.PEER_UNREACHABLE else None


class FakeApi:
    """The cluster's view of this node."""

    def __init__(self):
        self.boot_id = "boot-1"

    def node(self, name):
        return NodeView(name=name, boot_id=self.boot_id, ready=False)


@pytest.fixture
def ticket(make_pair):
    certificate, key = make_pair("w-1")
    return NodeTicket(
        role="worker",
        disk_id=DISK,
        kubernetes_version="1.35.4",
        api_endpoint="api:6443",
        cluster_ca=b"ca",
        credential=KubeletCredential(certificate=certificate, key=key),
    )


SHARED = {
    name: f"{name}\n".encode()
    for name in (
        "pki/ca.crt",
        "pki/ca.key",
        "pki/etcd/ca.crt",
        "pki/etcd/ca.key",
        "pki/front-proxy-ca.crt",
        "pki/front-proxy-ca.key",
        "pki/sa.key",
        "pki/sa.pub",
    )
}


class FakeKeys:
    """Keeps what a control plane's ticket brings; ``locked`` is whether the lock was taken by then, at each call."""

    def __init__(self, lock):
        self.lock = lock
        self.kept = []
        self.locked = []
        self.failures = []

    def take(self, brought):
        if self.failures:
            raise self.failures.pop(0)
        self.kept.append(brought)
        self.locked.append(self.lock.reading.state is LockState.LOCKED)
        return True


class Ready:
    """An API server that answers."""

    def is_ready(self):
        return True


@pytest.fixture
def member_ticket(make_pair):
    certificate, key = make_pair("cp-2")
    return NodeTicket(
        role="control-plane",
        disk_id=DISK,
        kubernetes_version="1.35.4",
        api_endpoint="api:6443",
        cluster_ca=b"ca",
        credential=KubeletCredential(certificate=certificate, key=key),
        control_plane=ControlPlaneTicket(files=SHARED, bundle=b"bundle", policy=b"{}", judged={4: b"4" * 32}),
    )


@pytest.fixture
def member_parts(parts, machine, api, member_ticket):
    joiner = ControlPlaneMember(NodeSpec(name="cp-2", node_ip="10.0.0.12"), machine, reader=api, health=Ready())
    config = dataclasses.replace(CONFIG, name="cp-2")
    tickets = FakeTickets(member_ticket)
    return dataclasses.replace(parts, config=config, joiner=joiner, tickets=tickets, keys=FakeKeys(parts.lock))


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def parts(machine, api, ticket, tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot-1\n")
    worker = Worker(NodeSpec(name="w-1", node_ip="10.0.0.21"), machine, reader=api)
    return Parts(
        config=CONFIG,
        machine=machine,
        joiner=worker,
        lock=FakeLock(machine.paths.lock_marker),
        tickets=FakeTickets(ticket),
        journal=NodeJournal(tmp_path / "var/lib/attested/node.json", clock=machine.clock),
        marker=machine.paths.lock_marker,
        boot_id=boot_id,
        confirmed=tmp_path / "run/attested/joined",
    )
