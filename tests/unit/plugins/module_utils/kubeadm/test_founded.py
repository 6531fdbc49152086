# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that made its cluster, after a reset: its kubelet is started, nothing is made anew."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import JoinMaterial, ReturningFounder
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import NodeSpec
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import SHARED, FakeApi, Ready

NODE = NodeSpec(name="cp-1", node_ip="10.0.0.11")


class Never:
    """An API server that does not come."""

    def is_ready(self):
        return False


@pytest.fixture
def founder(locked):
    return ReturningFounder(NODE, locked, reader=FakeApi(), health=Ready())


@pytest.fixture
def material(make_pair):
    certificate, key = make_pair("cp-1")
    return JoinMaterial(
        cluster_name="prod",
        api_endpoint="api.prod.example:6443",
        ca=b"ca",
        credential=KubeletCredential(certificate=certificate, key=key),
        control_plane_files=SHARED,
    )


def test_its_kubelet_is_started_once_and_no_phase_runs(founder, programs):
    todo = founder.plan()
    assert [step.name for step in founder.apply(todo)] == ["kubelet"]
    assert (programs.phases(), bool(founder.plan()), founder.apply(founder.plan())) == ([], False, ())


def test_what_a_ticket_brings_is_written_once(founder, material, machine):
    assert founder.write(material)
    assert not founder.write(material)
    assert {name: (machine.paths.kubernetes / name).read_bytes() for name in SHARED} == SHARED
    assert machine.paths.kubelet_credential.exists()
    assert not machine.paths.kubelet_config.exists()  # kubeadm made that one, for the API server of this machine


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_ticket_that_lacks_a_file_changes_nothing(founder, material, machine, name):
    less = {one: data for one, data in SHARED.items() if one != name}
    with pytest.raises(AttestedError) as caught:
        founder.write(dataclasses.replace(material, control_plane_files=less))
    assert caught.value.code == "TICKET_MALFORMED"
    assert not machine.paths.kubelet_credential.exists()


def test_an_api_server_that_does_not_come_is_told(locked):
    founder = ReturningFounder(NODE, locked, reader=FakeApi(), health=Never())
    with pytest.raises(KubeadmError) as caught:
        founder.apply(founder.plan())
    assert caught.value.code == "API_UNREACHABLE"


def test_it_is_seen_by_its_own_api_server(founder, tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot-1\n")
    assert founder.confirm(boot_id=boot_id).boot_id == "boot-1"
