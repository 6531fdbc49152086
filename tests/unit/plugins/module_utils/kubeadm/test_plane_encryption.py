# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One control plane of a rotation: its file, its API server, and that it is waited for."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api_server import (
    ApiServer,
    used_files,
    with_encryption_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import guards, written_with
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import (
    PlaneEncryption,
    encryption_arguments,
    parse_keys,
    render_encryption,
    render_keys,
    set_arguments,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    admission_file,
    admission_path,
    encryption_path,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, PodSecurity
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

KEY = bytes(range(32))
METRIC = "apiserver_encryption_config_controller_last_config_info"
MANIFEST = """apiVersion: v1
kind: Pod
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=10.0.0.12
    - --secure-port=6443
    volumeMounts:
    - mountPath: {mount}
      name: attested
"""


class Random:
    def __init__(self):
        self.calls = 0

    def token(self, size):
        self.calls += 1
        return bytes([0x40 + self.calls]) * size


class Programs:
    """A kubectl beside an API server that takes a new file, or is restarted, within ``seconds``."""

    def __init__(self, paths, clock, *, seconds=45, config=None):
        self.paths, self.clock, self.seconds = paths, clock, seconds
        self.used, self.since, self.calls = b"", 0.0, []
        self.config = config
        self.down = False

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del timeout_seconds, env, check
        self.calls.append(tuple(argv))
        words = [word for word in argv[1:] if not word.startswith("--")]
        code, said = getattr(self, f"_{words[0]}")(argv, stdin)
        return CommandResult(argv=tuple(argv), returncode=code, stdout=said, stderr=b"" if code == 0 else b"refused")

    def _get(self, argv, _stdin):
        if "--raw=/metrics" not in argv:
            return 0, json.dumps(self.config).encode() if self.config else b""
        assert "--server=https://10.0.0.12:6443" in argv
        place = encryption_path(self.paths)
        now = place.read_bytes() if place.exists() else b""
        if now != self.used and self.clock.monotonic() - self.since >= self.seconds:
            self.used = now
        shown = f'{METRIC}{{apiserver_id_hash="sha256:ab",hash="sha256:{hashlib.sha256(self.used).hexdigest()}"}} 1\n'
        return (1 if self.down else 0), shown.encode()

    def _replace(self, _argv, stdin):
        self.config = json.loads(stdin)
        return 0, b""


@pytest.fixture
def paths(tmp_path):
    found = KubernetesPaths(root=tmp_path)
    manifest = found.kubernetes / "manifests/kube-apiserver.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(with_encryption_file(MANIFEST.format(mount=encryption_path(found).parent), found))
    encryption_path(found).parent.mkdir()
    encryption_path(found).write_bytes(render_encryption(KEY))
    return found


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def programs(paths, clock):
    return Programs(paths, clock)


@pytest.fixture
def kubectl(programs, clock):
    return Kubectl(programs, kubeconfig=Path("admin.conf"), clock=clock)


@pytest.fixture
def plane(paths, kubectl, clock):
    return PlaneEncryption(paths, ApiServer(paths, kubectl, clock=clock))


def test_what_is_there_is_told_without_the_key(plane, programs, clock):
    assert not plane.observe(name="cp-2").taken
    clock.sleep(60)
    found = plane.observe(name="cp-2")
    assert (found.order, found.taken, found.lead) == (("key-1",), True, "key-1")
    assert programs.used == render_encryption(KEY)
    assert KEY.hex()[:12] not in repr(found)


def test_a_new_key_is_last_and_waits_for_nobody(plane, paths, clock):
    made = plane.make(random=Random())
    assert plane.observe(name="cp-2").order == ("key-1", made)
    assert made.startswith("key-2-")
    assert (clock.elapsed, encryption_path(paths).stat().st_mode & 0o777) == (0, 0o600)


def test_an_order_is_written_and_waited_for_and_the_second_time_is_there(plane, kubectl, clock):
    made = plane.make(random=Random())
    wanted = plane.arrange((made, "key-1"), given={})
    assert plane.differs(wanted)
    assert plane.place(wanted, kubectl)
    assert 40 < clock.elapsed < 60
    found = plane.observe(name="cp-2")
    assert (found.order, found.taken) == ((made, "key-1"), True)
    assert not plane.differs(wanted)
    assert not plane.place(wanted, kubectl)
    assert clock.elapsed < 60


def test_a_key_of_another_control_plane_is_taken_and_one_that_nobody_gives_is_missing(plane, kubectl):
    wanted = plane.arrange(("key-1", "mine"), given={"mine": KEY[::-1]})
    plane.place(wanted, kubectl)
    assert plane.give(["mine"]) == {"mine": KEY[::-1]}
    with pytest.raises(KubeadmError) as caught:
        plane.arrange(("key-1", "another"), given={})
    assert caught.value.code == "ENCRYPTION_KEY_MISSING"
    with pytest.raises(KubeadmError) as caught:
        plane.give(["another"])
    assert caught.value.code == "ENCRYPTION_KEY_MISSING"


def test_a_key_under_the_name_of_another_never_gets_to_the_disk(plane, kubectl, paths):
    before = encryption_path(paths).read_bytes()
    wanted = plane.arrange(("key-2-0000000000000000", "key-1"), given={"key-2-0000000000000000": KEY})
    with pytest.raises(KubeadmError) as caught:
        plane.place(wanted, kubectl)
    assert (caught.value.code, encryption_path(paths).read_bytes()) == ("ENCRYPTION_MALFORMED", before)


@pytest.mark.parametrize("is_down", [False, True])
def test_an_api_server_that_does_not_take_it_stops_the_run(plane, programs, kubectl, is_down):
    made = plane.make(random=Random())
    programs.seconds, programs.down = 10_000, is_down
    with pytest.raises(KubeadmError) as caught:
        plane.place(plane.arrange((made, "key-1"), given={}), kubectl)
    assert caught.value.code == "ENCRYPTION_NOT_TAKEN"
    assert ("refused" in caught.value.message) is is_down


def test_a_control_plane_in_clear_is_told_after_its_joiners(plane, programs, kubectl, paths):
    manifest = paths.kubernetes / "manifests/kube-apiserver.yaml"
    manifest.write_text(MANIFEST.format(mount=encryption_path(paths).parent))
    encryption_path(paths).unlink()
    configuration = {"kind": "ClusterConfiguration", "apiServer": {"extraArgs": [{"name": "profiling", "value": "f"}]}}
    programs.config = {
        "metadata": {"resourceVersion": "7"},
        "data": {"ClusterConfiguration": json.dumps(configuration)},
    }
    found = plane.observe(name="cp-2")
    assert (found.order, found.lead, found.taken) == (("identity",), "identity", False)
    made = plane.make(random=Random())
    assert made.startswith("key-1-")
    assert plane.observe(name="cp-2").order == ("identity", made)
    plane.place(plane.arrange(("identity", made), given={}), kubectl)
    assert f"    - --encryption-provider-config={encryption_path(paths)}\n" in manifest.read_text()
    (joiners,) = load_documents(programs.config["data"]["ClusterConfiguration"])
    assert [one["name"] for one in joiners["apiServer"]["extraArgs"]][1] == "encryption-provider-config"
    assert programs.config["metadata"]["resourceVersion"] == "7"
    assert not set_arguments(kubectl, partial(encryption_arguments, path="/x"), check_mode=True)


def test_a_file_that_is_lost_is_no_key_at_all(plane, paths):
    encryption_path(paths).unlink()
    found = plane.observe(name="cp-2")
    assert (found.order, found.lead, found.taken) == ((), "", False)


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param("kind: Pod\n", id="no manifest of kubeadm"),
        pytest.param(MANIFEST.format(mount="/elsewhere"), id="the file is not shown to it"),
    ],
)
def test_an_api_server_that_cannot_be_told_is_left_alone(paths, manifest):
    with pytest.raises(KubeadmError) as caught:
        with_encryption_file(manifest, paths)
    assert Coded(caught.value) == "CONTROL_PLANE_MANIFEST_MALFORMED: encryption at rest"


@pytest.mark.parametrize("config", [None, {"data": {}}, {"data": {"ClusterConfiguration": "a: ["}}])
def test_joiners_that_cannot_be_told_are_named(plane, programs, kubectl, paths, config):
    if config is None:
        config = {"data": {"ClusterConfiguration": "3"}}
    (paths.kubernetes / "manifests/kube-apiserver.yaml").write_text(
        MANIFEST.format(mount=encryption_path(paths).parent)
    )
    programs.config = config
    with pytest.raises(KubeadmError) as caught:
        plane.place(plane.arrange(("identity", "key-1"), given={}), kubectl)
    assert Coded(caught.value) == "CONTROL_PLANE_MANIFEST_MALFORMED: expected kubeadm's ClusterConfiguration"
    assert "encryption-provider-config" not in (paths.kubernetes / "manifests/kube-apiserver.yaml").read_text()


def test_status_names_the_key_in_force_and_never_fails(paths):
    assert written_with(paths) == "key-1"
    encryption_path(paths).write_bytes(b"kind: Broken\n")
    assert written_with(paths) == ""
    encryption_path(paths).unlink()
    assert written_with(paths) == "identity"


API_SERVER = """spec:
  containers:
  - command:
    - kube-apiserver
    - --admission-control-config-file={place}
    - --enable-admission-plugins=DenyServiceExternalIPs,NodeRestriction
    - --kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt
"""


def test_status_says_what_pods_are_held_to_and_never_fails(paths):
    """By the manifest: what a site says is not what an API server was told."""
    manifest, place = paths.kubernetes / "manifests/kube-apiserver.yaml", admission_path(paths)
    before = {"external_ips_denied": False, "kubelets_checked": False, "exempt_namespaces": ["kube-system"]}
    assert guards(paths) == {**before, "pod_security": "privileged"}
    manifest.write_text(API_SERVER.format(place=place))
    told = {"external_ips_denied": True, "kubelets_checked": True, "exempt_namespaces": ["kube-system"]}
    assert guards(paths) == {**told, "pod_security": ""}
    place.write_bytes(admission_file(PodSecurity(level="restricted", exempt=("rook-ceph",))))
    said = {"exempt_namespaces": ["kube-system", "rook-ceph"], "pod_security": "restricted"}
    assert guards(paths) == {**told, **said}
    manifest.write_text(API_SERVER.format(place="/etc/own.yaml"))
    assert guards(paths) == {**told, "pod_security": ""}
    manifest.unlink()
    assert guards(paths) == {**before, "pod_security": "privileged"}


def test_metrics_without_the_file_name_none():
    assert used_files("") == frozenset()
    assert used_files(f'{METRIC}{{hash="sha256:{"a" * 64}"}} 0\n') == frozenset()
    assert used_files(f'# {METRIC}{{hash="sha256:{"a" * 64}"}} 1\n') == frozenset()
    assert used_files(f'{METRIC}{{hash="sha256:{"a" * 64}"}} 1\n') == {"a" * 64}


def test_keys_are_the_same_on_the_other_side():
    assert parse_keys(render_keys({"key-1": KEY})) == {"key-1": KEY}
    with pytest.raises(KubeadmError) as caught:
        parse_keys(b"[]")
    assert caught.value.code == "ENCRYPTION_MALFORMED"
