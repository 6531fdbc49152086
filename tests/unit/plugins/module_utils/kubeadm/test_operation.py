# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Init and join, phase by phase, on a machine in a directory."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import ControlPlane
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import JoinMaterial, Worker
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import ClusterSpec, NodeSpec
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

CLUSTER = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
NODE = NodeSpec(name="cp-1", node_ip="10.0.0.11")
WORKER = NodeSpec(name="w-1", node_ip="10.0.0.21", allow_cgroup_v1=True)
FAILED = (1, b"error execution phase\ntoken abcdef.0123456789abcdef\n-----BEGIN EC PRIVATE KEY-----\nMHc\n")


class Health:
    ready = True

    def is_ready(self):
        return self.ready


@pytest.fixture
def health():
    return Health()


@pytest.fixture
def control_plane(locked, health):
    return ControlPlane(CLUSTER, NODE, locked, health=health)


@pytest.fixture
def worker(locked):
    return Worker(WORKER, locked)


def test_init_runs_each_phase_once_and_then_nothing(control_plane, programs, machine):
    first = control_plane.apply(control_plane.plan())
    assert first.complete
    assert programs.phases() == [
        "preflight",
        "certs all",
        "kubeconfig all",
        "etcd local",
        "control-plane all",
        "kubelet-start",
        "upload-config all",
        "mark-control-plane",
        "kubelet-finalize all",
        "addon coredns",
        "addon kube-proxy",
    ]
    assert not machine.paths.super_admin_config.exists()
    assert not control_plane.plan()


def test_without_kube_proxy_its_phase_installs_nothing_and_the_control_plane_is_complete(locked, programs, health):
    without = ControlPlane(dataclasses.replace(CLUSTER, kube_proxy=False), NODE, locked, health=health)
    outcome = without.apply(without.plan())
    assert outcome.complete
    assert "addon coredns" in programs.phases()
    assert "addon kube-proxy" not in programs.phases()
    assert [step.title for step in outcome.steps if step.name == "kube-proxy"] == ["Leave out kube-proxy"]
    assert not without.plan()


def test_kubelet_reads_its_credential_from_the_file(control_plane, machine):
    control_plane.apply(control_plane.plan(), until="kubelet-credential")
    assert "client-key-data" not in machine.paths.kubelet_config.read_text()
    assert str(machine.paths.kubelet_credential) in machine.paths.kubelet_config.read_text()
    assert machine.paths.kubelet_credential.stat().st_mode & 0o777 == 0o600


def test_until_stops_there_and_the_next_call_goes_on(control_plane, programs):
    half = control_plane.apply(control_plane.plan(), until="etcd")
    assert ([step.name for step in half.steps][-1], half.complete) == ("etcd", False)
    rest = control_plane.apply(control_plane.plan())
    assert rest.complete
    assert len(programs.phases()) == len(set(programs.phases()))


def test_until_with_an_unknown_phase_is_refused(control_plane):
    with pytest.raises(KubeadmError) as caught:
        control_plane.apply(control_plane.plan(), until="bootstrap-token")
    assert caught.value.code == "OPTION_INVALID"


def test_the_kubelet_starts_at_the_next_boot_too(control_plane, programs):
    control_plane.apply(control_plane.plan(), until="preflight")
    assert ("systemctl", "enable", "--quiet", "kubelet.service") in programs.calls


def test_without_the_lock_nothing_runs(machine, programs):
    plane = ControlPlane(CLUSTER, NODE, machine)
    with pytest.raises(KubeadmError) as caught:
        plane.apply(plane.plan())
    assert caught.value.code == "NODELOCK_NOT_HELD"
    assert programs.phases() == []


def test_a_failed_phase_says_its_last_words_without_secrets(control_plane, programs):
    programs.answers[("kubeadm", "init", "phase", "certs")] = FAILED
    with pytest.raises(KubeadmError) as caught:
        control_plane.apply(control_plane.plan())
    assert caught.value.code == "KUBEADM_PHASE_FAILED"
    assert "error execution phase" in caught.value.message
    assert "abcdef.0123456789abcdef" not in caught.value.message
    assert "MHc" not in caught.value.message


def test_after_a_failed_phase_the_next_run_continues_there(control_plane, programs):
    programs.answers[("kubeadm", "init", "phase", "control-plane")] = FAILED
    with pytest.raises(KubeadmError):
        control_plane.apply(control_plane.plan())
    programs.answers.clear()
    programs.calls.clear()
    assert control_plane.apply(control_plane.plan()).complete
    assert programs.phases()[0] == "control-plane all"


def test_a_phase_that_hangs_is_told_as_such(control_plane, programs):
    programs.answers[("kubeadm", "init", "phase", "upload-config")] = "timeout"
    with pytest.raises(KubeadmError) as caught:
        control_plane.apply(control_plane.plan())
    assert Coded(caught.value) == "KUBEADM_PHASE_FAILED: expected kubeadm init phase upload-config"
    assert caught.value.hint.startswith("Check whether the kubelet runs")


def test_an_api_server_that_never_gets_ready_is_told(control_plane, health):
    health.ready = False
    with pytest.raises(KubeadmError) as caught:
        control_plane.apply(control_plane.plan())
    assert caught.value.code == "API_UNREACHABLE"


def test_a_boot_in_the_middle_starts_the_kubelet_before_the_rest(control_plane, programs):
    control_plane.apply(control_plane.plan(), until="upload-config")
    programs.active = False
    programs.calls.clear()
    steps = control_plane.apply(control_plane.plan()).steps
    assert [step.name for step in steps][:2] == ["kubelet", "mark-control-plane"]
    start = programs.calls.index(("systemctl", "start", "kubelet.service"))
    assert all(call[0] != "kubeadm" for call in programs.calls[:start])


def test_a_stopped_kubelet_is_started_and_nothing_else(control_plane, programs):
    control_plane.apply(control_plane.plan())
    programs.active = False
    programs.calls.clear()
    outcome = control_plane.apply(control_plane.plan())
    assert [step.name for step in outcome.steps] == ["kubelet"]
    assert programs.phases() == []


def test_a_machine_keeps_its_role(control_plane, locked):
    control_plane.apply(control_plane.plan(), until="preflight")
    with pytest.raises(KubeadmError) as caught:
        Worker(WORKER, locked).plan()
    assert caught.value.code == "KUBEADM_OTHER_ROLE"


def test_a_broken_journal_is_refused(worker, machine):
    machine.paths.state.mkdir(parents=True)
    (machine.paths.state / "progress.json").write_text('{"version": 9}')
    with pytest.raises(KubeadmError) as caught:
        worker.plan()
    assert Coded(caught.value) == "NODE_JOURNAL_MALFORMED: progress of kubeadm"


def material(make_pair, **changes):
    certificate, key = make_pair("w-1")
    return JoinMaterial(
        cluster_name="prod",
        api_endpoint="api.prod.example:6443",
        ca=b"-----BEGIN CERTIFICATE-----\n",
        **{"credential": KubeletCredential(certificate=certificate, key=key), **changes},
    )


def test_join_runs_its_phases_and_then_nothing(worker, programs, make_pair, machine):
    assert worker.write(material(make_pair))
    worker.apply(worker.plan())
    assert programs.phases() == ["preflight", "kubelet-start"]
    assert not (machine.paths.kubernetes / "bootstrap-kubelet.conf").exists()
    assert not worker.plan()


def test_join_ignores_the_files_that_it_wrote_itself_and_the_allowed_checks(worker, programs):
    worker.apply(worker.plan())
    check = next(words for words in programs.calls if words[:4] == ("kubeadm", "join", "phase", "preflight"))
    assert check[-1] == (
        "--ignore-preflight-errors=SystemVerification,"
        "FileAvailable--etc-kubernetes-kubelet.conf,FileAvailable--etc-kubernetes-pki-ca.crt"
    )


def test_the_same_credential_again_changes_nothing(worker, make_pair):
    same = material(make_pair)
    assert [worker.write(same), worker.write(same)] == [True, False]


@pytest.mark.parametrize(
    ("proxy", "endpoint", "cluster"),
    [
        pytest.param(
            "", "api.prod.example:6443", {"server": "https://api.prod.example:6443"}, id="none: the endpoint, as ever"
        ),
        pytest.param(
            "127.0.0.1:6444",
            "api.prod.example:6443",
            {"server": "https://127.0.0.1:6444", "tls-server-name": "api.prod.example"},
            id="a proxy, and the endpoint's name in the certificate",
        ),
        pytest.param(
            "127.0.0.1:6444",
            "[fd00::11]:6443",
            {"server": "https://127.0.0.1:6444", "tls-server-name": "fd00::11"},
            id="a proxy, and the endpoint's address in the certificate",
        ),
    ],
)
def test_the_kubelet_dials_what_the_node_says(locked, make_pair, machine, proxy, endpoint, cluster):
    worker = Worker(dataclasses.replace(WORKER, api_proxy=proxy), locked)
    worker.write(dataclasses.replace(material(make_pair), api_endpoint=endpoint))
    found = yaml.safe_load(machine.paths.kubelet_config.read_text())["clusters"][0]["cluster"]
    assert {name: value for name, value in found.items() if name != "certificate-authority-data"} == cluster


@pytest.mark.parametrize(
    "proxy",
    [
        pytest.param("10.0.0.11:6443", id="another machine"),
        pytest.param("0.0.0.0:6444", id="no address in particular"),
        pytest.param("localhost:6444", id="a name, which somebody else may resolve"),
        pytest.param("127.0.0.1", id="no port"),
        pytest.param("127.0.0.1:0", id="port 0"),
    ],
)
def test_a_proxy_that_is_not_on_this_machine_is_refused(locked, proxy):
    with pytest.raises(KubeadmError) as caught:
        Worker(dataclasses.replace(WORKER, api_proxy=proxy), locked)
    assert caught.value.code == "OPTION_INVALID"


def test_a_renewed_credential_replaces_the_file_behind_the_link(worker, make_pair, machine, clock):
    worker.write(material(make_pair))
    clock.sleep(60)
    worker.write(material(make_pair))
    files = sorted(path.name for path in machine.paths.kubelet_credential.parent.iterdir())
    assert files == ["kubelet-client-2026-11-21-12-01-00.pem", "kubelet-client-current.pem"]


@pytest.mark.parametrize(
    ("certificate_of", "organization"),
    [
        pytest.param("w-2", "system:nodes", id="a certificate of another node"),
        pytest.param("w-1", "system:masters", id="a certificate of another group"),
    ],
)
def test_a_credential_for_somebody_else_is_not_written(worker, make_pair, machine, certificate_of, organization):
    certificate, key = make_pair(certificate_of, organization)
    with pytest.raises(KubeadmError) as caught:
        worker.write(material(make_pair, credential=KubeletCredential(certificate=certificate, key=key)))
    assert caught.value.code == "KUBELET_CREDENTIAL_INVALID"
    assert not machine.paths.kubelet_config.exists()


def test_a_certificate_of_another_key_is_not_written(worker, make_pair):
    certificate, _key = make_pair("w-1")
    _certificate, key = make_pair("w-1")
    with pytest.raises(KubeadmError) as caught:
        worker.write(material(make_pair, credential=KubeletCredential(certificate=certificate, key=key)))
    assert caught.value.code == "KUBELET_CREDENTIAL_INVALID"


def test_a_credential_shows_no_key():
    assert "secret" not in repr(KubeletCredential(certificate=b"c", key=b"secret"))


def test_another_name_begins_a_new_join_of_an_unfinished_one(worker, locked, programs):
    programs.answers[("kubeadm", "join", "phase", "kubelet-start")] = FAILED
    with pytest.raises(KubeadmError):
        worker.apply(worker.plan())
    other = Worker(dataclasses.replace(WORKER, name="w-9"), locked)
    assert other.plan().phases[0].name == "kubelet-start"
