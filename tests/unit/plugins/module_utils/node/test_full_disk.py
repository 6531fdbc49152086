# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk that is full before each write of a join and an init: a reason, nothing half written, the next run ends."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import ControlPlane
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import ClusterSpec, NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import NodeRun
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.full_disk import full_disk
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import Ready

__all__ = ["full_disk"]

WORKER_WRITES, MEMBER_WRITES, INIT_WRITES = 25, 47, 38


def join(parts):
    node = NodeRun(parts)
    node.apply(node.plan())


@pytest.fixture
def control_plane(locked):
    cluster = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
    return ControlPlane(cluster, NodeSpec(name="cp-1", node_ip="10.0.0.11"), locked, health=Ready())


def assert_told(caught, tmp_path):
    assert caught.value.reason is Reason.FILE_UNUSABLE
    assert "No space left on device" in caught.value.message
    assert [path for path in tmp_path.rglob(".*.*") if path.is_file()] == []


@pytest.fixture
def worker(parts, full_disk, monkeypatch):
    """A machine that is to become a worker; its lock lies in memory."""
    return on_disk(parts, full_disk, monkeypatch)


@pytest.fixture
def member(member_parts, full_disk, monkeypatch):
    """A machine that is to become a further control plane."""
    return on_disk(member_parts, full_disk, monkeypatch)


def on_disk(parts, disk, monkeypatch):
    acquire = parts.lock.acquire

    def acquire_elsewhere(cluster_id):
        with disk.elsewhere():
            return acquire(cluster_id)

    monkeypatch.setattr(parts.lock, "acquire", acquire_elsewhere)
    return parts


def test_these_are_all_writes_of_a_join(worker, full_disk):
    join(worker)
    assert full_disk.taken == WORKER_WRITES


def test_these_are_all_writes_of_a_control_planes_join(member, full_disk):
    join(member)
    assert full_disk.taken == MEMBER_WRITES


def test_these_are_all_writes_of_an_init(control_plane, full_disk):
    control_plane.apply(control_plane.plan())
    assert full_disk.taken == INIT_WRITES


@pytest.mark.parametrize("room", range(WORKER_WRITES))
def test_a_join_on_a_full_disk_is_told_and_goes_on_when_there_is_room(worker, full_disk, tmp_path, room):
    full_disk.fill(after=room)
    with pytest.raises(SystemFault) as caught:
        join(worker)
    assert_told(caught, tmp_path)
    full_disk.free()
    join(worker)
    assert (worker.journal.load().phase, worker.lock.taken) == (NodePhase.JOINED, 1)


@pytest.mark.parametrize("room", range(MEMBER_WRITES))
def test_a_control_planes_join_on_a_full_disk_goes_on_when_there_is_room(member, full_disk, tmp_path, room):
    full_disk.fill(after=room)
    with pytest.raises(SystemFault) as caught:
        join(member)
    assert_told(caught, tmp_path)
    full_disk.free()
    join(member)
    assert (member.journal.load().phase, member.lock.taken) == (NodePhase.JOINED, 1)


@pytest.mark.parametrize("room", range(INIT_WRITES))
def test_an_init_on_a_full_disk_is_told_and_goes_on_when_there_is_room(control_plane, full_disk, tmp_path, room):
    full_disk.fill(after=room)
    with pytest.raises(SystemFault) as caught:
        control_plane.apply(control_plane.plan())
    assert_told(caught, tmp_path)
    full_disk.free()
    assert control_plane.apply(control_plane.plan()).complete
    assert not control_plane.plan()
