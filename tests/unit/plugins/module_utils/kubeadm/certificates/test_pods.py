# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests of static pods that are none of kubeadm's, and what the API says of a pod."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.static_pods import (
    RESTARTED_AT,
    StaticPods,
    arguments_of,
    probe_of,
    runs_since,
    stamped,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

STAMP = "2026-11-21T12:00:00.000000Z"


def manifest(**changes):
    probe = {"httpGet": {"scheme": "HTTPS", "host": "127.0.0.1", "port": "probe-port", "path": "/readyz"}}
    container = {"name": "a", "readinessProbe": probe, "ports": [{"name": "probe-port", "containerPort": 1}], **changes}
    return {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"[", id="no YAML"),
        pytest.param(b"text", id="no mapping"),
        pytest.param(b"{kind: Service, metadata: {name: a}, spec: {containers: [a]}}", id="no pod"),
        pytest.param(b"{kind: Pod, metadata: {name: a}, spec: {containers: []}}", id="no container"),
        pytest.param(b"{kind: Pod, spec: {containers: [a]}}", id="no name"),
        pytest.param(json.dumps(manifest(readinessProbe=None)).encode(), id="no probe"),
        pytest.param(json.dumps(manifest(readinessProbe={"exec": {}})).encode(), id="a probe that is a program"),
        pytest.param(json.dumps(manifest(ports=[])).encode(), id="a port without a number"),
    ],
)
def test_a_manifest_that_is_none_of_kubeadms_is_refused(document):
    with pytest.raises(KubeadmError, match="manifest of a static pod") as caught:
        stamped(document, STAMP), probe_of(document)
    assert Coded(caught.value) == "CONTROL_PLANE_MANIFEST_MALFORMED: manifest of a static pod"


def told(*command):
    return json.dumps(manifest(command=list(command))).encode()


def test_arguments_take_the_place_of_those_of_the_same_name():
    before = told("a", "--x=1", "--plugins=N", "--plain", "--plugins-off=M")
    after = stamped(before, STAMP, {"plugins": "D,N", "file": "/f"})
    assert arguments_of(after) == {"x": "1", "plain": "", "plugins-off": "M", "file": "/f", "plugins": "D,N"}
    assert yaml.safe_load(after)["spec"]["containers"][0]["command"][0] == "a"
    assert arguments_of(stamped(before, STAMP)) == arguments_of(before)


@pytest.mark.parametrize(
    "command", [pytest.param([], id="none"), pytest.param("a", id="a word"), pytest.param(["a", 1], id="a number")]
)
def test_a_container_without_a_command_of_words_is_told_nothing(command):
    text = json.dumps(manifest(command=command)).encode()
    with pytest.raises(KubeadmError, match="a command of words") as caught:
        stamped(text, STAMP, {"a": "b"})
    assert Coded(caught.value) == "CONTROL_PLANE_MANIFEST_MALFORMED: manifest of a static pod"


def test_without_a_readiness_probe_the_liveness_probe_is_asked():
    probe = {"httpGet": {"scheme": "HTTP", "host": "::1", "port": 8, "path": "/livez"}}
    found = probe_of(json.dumps(manifest(readinessProbe=None, livenessProbe=probe)).encode())
    assert (found.scheme, found.host, found.port, found.path) == ("HTTP", "::1", 8, "/livez")


def pod(stamp=STAMP, states=({"ready": True},)):
    annotations = None if stamp is None else {RESTARTED_AT: stamp}
    return {"metadata": {"annotations": annotations}, "status": {"containerStatuses": list(states)}}


@pytest.mark.parametrize(
    ("found", "is_new"),
    [
        pytest.param(pod(), True, id="the annotation, and ready"),
        pytest.param(None, False, id="no pod yet"),
        pytest.param(pod("2026-11-20T12:00:00.000000Z"), False, id="the one before"),
        pytest.param(pod(None), False, id="one without annotations"),
        pytest.param(pod(states=()), False, id="one whose containers nobody has seen"),
        pytest.param(pod(states=({"ready": True}, {"ready": False})), False, id="one that is not ready"),
        pytest.param({"metadata": {"annotations": {RESTARTED_AT: STAMP}}}, False, id="one without a status"),
    ],
)
def test_a_pod_runs_since_its_manifest_changed(found, is_new):
    assert runs_since(found, STAMP) is is_new


@pytest.fixture
def pods(tmp_path):
    """Static pods of a machine without any process of theirs."""
    manifests = tmp_path / "etc/kubernetes/manifests"
    manifests.mkdir(parents=True)
    for name in ("etcd", "kube-apiserver"):
        (manifests / f"{name}.yaml").write_bytes(told(name, "--name=cp-1"))
    machine = Machine(runner=None, clock=FakeClock(), paths=KubernetesPaths(root=tmp_path))
    return StaticPods(machine, node="cp-1", reader=None)


def process(root, *words):
    path = root / "proc" / "7" / "cmdline"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(word.encode() + b"\0" for word in words))


def test_what_is_stopped_is_out_of_the_kubelets_sight_and_still_says_its_arguments(pods, tmp_path):
    process(tmp_path, "etcd", "--name=another")
    for _twice in range(2):
        pods.stop(("kube-apiserver", "etcd"))
    assert list((tmp_path / "etc/kubernetes/manifests").iterdir()) == []
    assert pods.arguments("etcd") == {"name": "cp-1"}


def test_a_program_that_does_not_end_is_named(pods, tmp_path):
    process(tmp_path, "etcd", "--name=cp-1")
    with pytest.raises(KubeadmError, match="expected etcd to end within 240 s") as caught:
        pods.stop(("kube-apiserver", "etcd"))
    assert Coded(caught.value) == "CONTROL_PLANE_COMPONENT_UNHEALTHY: expected etcd to end"


def test_a_program_that_does_not_become_well_is_named(pods, monkeypatch):
    monkeypatch.setattr(pods, "is_healthy", lambda _component: False)
    pods.stop(["etcd"])
    with pytest.raises(KubeadmError, match="expected etcd to be healthy within 240 s after it was started"):
        pods.start("etcd")
    pods.arguments("etcd")
    monkeypatch.setattr(pods, "is_healthy", lambda _component: True)
    pods.start("etcd")


def test_a_manifest_that_is_nowhere_stops_nothing(pods, tmp_path):
    (tmp_path / "etc/kubernetes/manifests/etcd.yaml").unlink()
    with pytest.raises(SystemFault) as caught:
        pods.stop(["etcd"])
    assert caught.value.code == "FILE_UNUSABLE"
