# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A further control plane, on a machine in a directory."""

from __future__ import annotations

import dataclasses
import json

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError, Refusal, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import render_encryption
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.files import (
    has_loaded,
    record_loaded,
    write_api_server_files,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import (
    ControlPlaneMember,
    JoinMaterial,
    Worker,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    admission_file,
    admission_path,
    audit_webhook_path,
    authentication_path,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import (
    audit_webhook_file,
    authentication_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import NodeSpec, PodSecurity
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import SHARED, Ready

ENCRYPTION = render_encryption(b"k" * 32)
NODE = NodeSpec(name="cp-2", node_ip="10.0.0.12")
PHASES = [
    "preflight",
    "control-plane-prepare certs",
    "control-plane-prepare kubeconfig",
    "control-plane-prepare control-plane",
    "kubelet-start",
    "etcd-join",
    "control-plane-join mark-control-plane",
]


class Never:
    def is_ready(self):
        return False


@pytest.fixture
def member(locked):
    return ControlPlaneMember(NODE, locked, health=Ready())


@pytest.fixture
def material(make_pair):
    certificate, key = make_pair("cp-2")
    return JoinMaterial(
        cluster_name="prod",
        api_endpoint="api.prod.example:6443",
        ca=b"ca",
        credential=KubeletCredential(certificate=certificate, key=key),
        control_plane_files=SHARED,
    )


def test_each_phase_runs_once_and_then_nothing(member, programs):
    member.apply(member.plan())
    assert programs.phases() == PHASES
    assert not member.plan()


def test_no_token_no_certificate_key_and_no_download_of_certificates(member, material, programs, machine):
    member.write(material)
    member.apply(member.plan())
    (config,) = [yaml.safe_load(path.read_text()) for path in machine.paths.state.glob("*.yaml")]
    assert config["discovery"] == {"file": {"kubeConfigPath": str(machine.paths.discovery_config)}}
    assert config["controlPlane"] == {"localAPIEndpoint": {"advertiseAddress": "10.0.0.12", "bindPort": 6443}}
    assert not [words for words in programs.calls if "download-certs" in words or "--certificate-key" in words]


def test_the_shared_files_have_the_modes_that_kubeadm_gives_them(member, material, machine):
    assert member.write(material)
    found = {name: (machine.paths.kubernetes / name).stat().st_mode & 0o777 for name in SHARED}
    assert {name for name, mode in found.items() if mode == 0o600} == {name for name in SHARED if name.endswith(".key")}
    assert {name for name, mode in found.items() if mode == 0o644} == {n for n in SHARED if not n.endswith(".key")}
    assert not member.write(material)


def test_the_encryption_of_the_api_server_is_written_where_the_ticket_brings_it(member, material, machine):
    files = {**SHARED, "attested/encryption.yaml": ENCRYPTION}
    member.write(dataclasses.replace(material, control_plane_files=files))
    placed = machine.paths.kubernetes / "attested/encryption.yaml"
    assert (placed.read_bytes(), placed.stat().st_mode & 0o777) == (ENCRYPTION, 0o600)


def test_an_encryption_that_no_api_server_could_use_is_refused_before_anything_is_written(member, material, machine):
    files = {**SHARED, "attested/encryption.yaml": b"{}"}
    with pytest.raises(KubeadmError) as caught:
        member.write(dataclasses.replace(material, control_plane_files=files))
    assert caught.value.code == "ENCRYPTION_MALFORMED"
    assert not machine.paths.kubernetes.exists()


@pytest.mark.parametrize("brought", [None, PodSecurity(level="restricted", exempt=("kube-flannel",))])
def test_pods_are_held_to_what_the_ticket_says_and_to_the_baseline_where_it_says_nothing(
    member, material, machine, brought
):
    """The API server that is made then has it from its first start."""
    wanted = admission_file(brought or PodSecurity())
    files = {**SHARED, **({"attested/admission.yaml": wanted} if brought else {})}
    member.write(dataclasses.replace(material, control_plane_files=files))
    member.apply(member.plan())
    assert admission_path(machine.paths).read_bytes() == wanted
    assert has_loaded(machine.paths.admission_taken, admission_path(machine.paths), wanted)


def test_an_api_server_that_is_there_has_not_taken_what_is_written_beside_it(machine):
    """It reads the file when it starts."""
    manifest = machine.paths.kubernetes / "manifests/kube-apiserver.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    record, place = machine.paths.admission_taken, admission_path(machine.paths)
    write_api_server_files(machine.paths, PodSecurity())
    assert not has_loaded(record, place, admission_file(PodSecurity()))
    record_loaded(record, admission_file(PodSecurity()))
    assert has_loaded(record, place, admission_file(PodSecurity()))
    assert not has_loaded(record, place, admission_file(PodSecurity(level="restricted")))


def test_authenticators_and_the_audit_webhook_come_with_the_ticket(member, material, machine):
    """The API server that is made then has the webhook's argument by a patch of kubeadm, and from its first start."""
    issuer = authentication_file([{"issuer": {"url": "https://login.example", "audiences": ["kubernetes"]}}])
    webhook = audit_webhook_file({"url": "https://audit.example/kubernetes"})
    files = {**SHARED, "attested/authentication.yaml": issuer, "attested/audit-webhook.yaml": webhook}
    member.write(dataclasses.replace(material, control_plane_files=files))
    member.apply(member.plan())
    place = audit_webhook_path(machine.paths)
    assert authentication_path(machine.paths).read_bytes() == issuer
    assert has_loaded(machine.paths.audit_webhook_taken, place, webhook)
    (patch,) = json.loads((machine.paths.state / "patches/kube-apiserver-audit+json.json").read_bytes())
    value = f"--audit-webhook-config-file={place}"
    assert patch == {"op": "add", "path": "/spec/containers/0/command/-", "value": value}


@pytest.mark.parametrize("name", ["authentication", "audit-webhook"])
@pytest.mark.parametrize("content", [b"", b"{}", b"kind: Config", b'{"clusters": []}'])
def test_files_for_the_api_server_that_are_not_ours_are_refused_before_anything_is_written(
    member, material, machine, name, content
):
    files = {**SHARED, f"attested/{name}.yaml": content}
    with pytest.raises(Refusal, match=f"expected attested/{name}.yaml as this collection writes it") as caught:
        member.write(dataclasses.replace(material, control_plane_files=files))
    assert caught.value.code == "TICKET_MALFORMED"
    assert not machine.paths.kubernetes.exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"kind: AdmissionConfiguration"])
def test_an_admission_configuration_that_is_not_ours_is_refused_before_anything_is_written(
    member, material, machine, content
):
    files = {**SHARED, "attested/admission.yaml": content}
    with pytest.raises(Refusal, match="expected the Pod Security configuration") as caught:
        member.write(dataclasses.replace(material, control_plane_files=files))
    assert caught.value.code == "TICKET_MALFORMED"
    assert not machine.paths.kubernetes.exists()


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({**SHARED, "../../etc/passwd": b"x"}, id="a path out of the directory"),
        pytest.param({**SHARED, "/etc/shadow": b"x"}, id="an absolute path"),
        pytest.param({**SHARED, "pki/../pki/ca.crt": b"x"}, id="another spelling of a name"),
        pytest.param({**SHARED, "admin.conf": b"x"}, id="a file of kubeadm"),
        pytest.param({name: data for name, data in SHARED.items() if name != "pki/sa.key"}, id="one file less"),
        pytest.param({}, id="none"),
    ],
)
def test_other_files_than_those_are_refused_before_anything_is_written(member, material, machine, files):
    with pytest.raises(Refusal) as caught:
        member.write(dataclasses.replace(material, control_plane_files=files))
    assert caught.value.code == "TICKET_MALFORMED"
    assert not machine.paths.kubernetes.exists()
    assert not machine.paths.kubelet_credential.exists()


def test_a_directory_that_leads_elsewhere_is_not_written_to(member, material, machine, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    machine.paths.kubernetes.mkdir(parents=True)
    (machine.paths.kubernetes / "pki").symlink_to(elsewhere)
    with pytest.raises(SystemFault) as caught:
        member.write(material)
    assert caught.value.code == "FILE_UNUSABLE"
    assert list(elsewhere.iterdir()) == []


def test_its_kubelet_speaks_to_its_own_api_server_and_kubeadm_to_the_running_ones(member, material, machine):
    member.write(material)
    servers = {
        path.name: yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        for path in (machine.paths.kubelet_config, machine.paths.discovery_config)
    }
    assert servers == {"kubelet.conf": "https://10.0.0.12:6443", "discovery.conf": "https://api.prod.example:6443"}
    assert "PRIVATE KEY" not in machine.paths.discovery_config.read_text()


def test_what_the_api_servers_arguments_name_is_there_before_it_is_described(member, machine):
    member.apply(member.plan())
    directory = machine.paths.kubernetes / "attested"
    assert {path.name for path in directory.iterdir()} >= {"audit-policy.yaml", "authentication.yaml"}


def test_copies_of_credentials_are_gone_at_the_end(member, machine):
    machine.paths.kubernetes.mkdir(parents=True)
    for name in ("bootstrap-kubelet.conf", "super-admin.conf"):
        (machine.paths.kubernetes / name).write_text("x")
    member.apply(member.plan())
    assert not machine.paths.super_admin_config.exists()
    assert not (machine.paths.kubernetes / "bootstrap-kubelet.conf").exists()


@pytest.mark.parametrize("phase", [pytest.param(phase, id=phase) for phase in PHASES])
def test_after_a_failed_phase_the_next_run_goes_on_there(member, programs, phase):
    programs.answers[("kubeadm", "join", "phase", *phase.split())] = (1, b"no quorum\n")
    with pytest.raises(KubeadmError) as caught:
        member.apply(member.plan())
    assert caught.value.code == "KUBEADM_PHASE_FAILED"
    programs.answers.clear()
    programs.calls.clear()
    member.apply(member.plan())
    assert programs.phases() == PHASES[PHASES.index(phase) :]
    assert not member.plan()


def test_an_api_server_that_does_not_answer_is_told_and_waited_for_again(locked, programs):
    silent = ControlPlaneMember(NODE, locked, health=Never())
    with pytest.raises(KubeadmError) as caught:
        silent.apply(silent.plan())
    assert caught.value.code == "API_UNREACHABLE"
    answering = ControlPlaneMember(NODE, locked, health=Ready())
    programs.calls.clear()
    answering.apply(answering.plan())
    assert programs.phases() == ["control-plane-join mark-control-plane"]


def test_a_kubelet_that_does_not_run_is_started_and_the_api_server_waited_for(member, programs):
    member.apply(member.plan())
    programs.active = False
    assert [step.name for step in member.apply(member.plan())] == ["kubelet"]
    assert not member.plan()


def test_a_worker_does_not_become_a_control_plane_nor_the_other_way_round(member, locked):
    member.apply(member.plan())
    with pytest.raises(KubeadmError) as caught:
        Worker(NODE, locked).plan()
    assert caught.value.code == "KUBEADM_OTHER_ROLE"


def test_without_the_lock_nothing_runs(machine, programs):
    member = ControlPlaneMember(NODE, machine, health=Ready())
    with pytest.raises(KubeadmError) as caught:
        member.apply(member.plan())
    assert caught.value.code == "NODELOCK_NOT_HELD"
    assert programs.phases() == []
