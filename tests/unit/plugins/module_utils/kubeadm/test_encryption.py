# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of Secrets at rest: made once, never overwritten, never shown."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import ControlPlane
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import (
    EncryptionAction,
    EncryptionState,
    plan_encryption,
    render_encryption,
    require_encryption,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.reset import Reset
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import ClusterSpec, NodeSpec

CLUSTER = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
NODE = NodeSpec(name="cp-1", node_ip="10.0.0.11")
KEY = bytes(range(32))
GOOD = json.loads(render_encryption(KEY))


class Counting:
    """Random bytes that say how often they were asked for."""

    def __init__(self):
        self.calls = 0

    def token(self, size):
        self.calls += 1
        return bytes([self.calls]) * size


class Healthy:
    def is_ready(self):
        return True


@pytest.fixture
def random():
    return Counting()


@pytest.fixture
def control_plane(locked, random):
    return ControlPlane(CLUSTER, NODE, locked, health=Healthy(), random=random)


@pytest.fixture
def place(locked):
    return locked.paths.kubernetes / "attested/encryption.yaml"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def key_in(path):
    (entry,) = json.loads(path.read_bytes())["resources"]
    return base64.b64decode(entry["providers"][0]["secretbox"]["keys"][0]["secret"])


def test_secrets_are_written_by_secretbox_and_what_is_in_clear_stays_readable():
    (entry,) = GOOD["resources"]
    assert entry["resources"] == ["secrets"]
    assert [[*provider] for provider in entry["providers"]] == [["secretbox"], ["identity"]]
    assert (GOOD["apiVersion"], GOOD["kind"]) == ("apiserver.config.k8s.io/v1", "EncryptionConfiguration")


def test_init_makes_one_key_for_root_alone(control_plane, place, random):
    control_plane.apply(control_plane.plan())
    assert (key_in(place), random.calls) == (b"\x01" * 32, 1)
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_second_init_keeps_the_key(control_plane, place, programs):
    programs.answers[("kubeadm", "init", "phase", "control-plane")] = (1, b"failed\n")
    with pytest.raises(KubeadmError):
        control_plane.apply(control_plane.plan())
    before = place.read_bytes()
    programs.answers.clear()
    assert control_plane.apply(control_plane.plan()).complete
    assert not control_plane.plan()
    assert place.read_bytes() == before


def test_no_key_is_made_before_the_lock(machine, random):
    plane = ControlPlane(CLUSTER, NODE, machine, health=Healthy(), random=random)
    with pytest.raises(KubeadmError) as caught:
        plane.apply(plane.plan())
    assert (caught.value.code, random.calls) == ("NODELOCK_NOT_HELD", 0)
    assert not machine.paths.kubernetes.exists()


def test_a_file_that_is_malformed_is_refused_and_kept(control_plane, place, programs):
    put(place, b"kind: Broken\n")
    with pytest.raises(KubeadmError) as caught:
        control_plane.plan()
    assert caught.value.code == "ENCRYPTION_MALFORMED"
    assert (place.read_bytes(), programs.phases()) == (b"kind: Broken\n", [])


def test_a_key_that_is_lost_is_not_replaced(control_plane, place, random, locked):
    control_plane.apply(control_plane.plan())
    put(locked.paths.kubernetes / "manifests/kube-apiserver.yaml", b"- --encryption-provider-config=/x\n")
    (locked.paths.root / "var/lib/etcd/member").mkdir(parents=True)
    place.unlink()
    with pytest.raises(KubeadmError) as caught:
        control_plane.plan()
    assert (caught.value.code, random.calls, place.exists()) == ("ENCRYPTION_KEY_LOST", 1, False)


def test_a_cluster_made_before_is_left_in_clear(control_plane, place, random, locked):
    """Complete, its API server was never told of a key, and the kubelet had to be started: nothing of it changes."""
    control_plane.apply(control_plane.plan())
    place.unlink()
    (locked.paths.root / "var/lib/etcd/member").mkdir(parents=True)
    manifest = locked.paths.kubernetes / "manifests/kube-apiserver.yaml"
    before = manifest.read_bytes()
    locked.kubelet.stop()
    control_plane.apply(control_plane.plan())
    assert not control_plane.plan()
    assert control_plane.is_in_clear
    assert (random.calls, place.exists(), manifest.read_bytes()) == (1, False, before)


@pytest.mark.parametrize(
    ("state", "deed"),
    [
        pytest.param(
            EncryptionState(file=False, data=False, configured=None), EncryptionAction.MAKE, id="a fresh machine"
        ),
        pytest.param(
            EncryptionState(file=True, data=True, configured=True), EncryptionAction.KEEP, id="a running control plane"
        ),
        pytest.param(
            EncryptionState(file=False, data=False, configured=True),
            EncryptionAction.MAKE,
            id="nothing was ever written",
        ),
        pytest.param(
            EncryptionState(file=False, data=True, configured=False),
            EncryptionAction.MAKE,
            id="all is in clear up to now",
        ),
    ],
)
def test_what_is_done_about_the_file(state, deed):
    assert plan_encryption(state) is deed


@pytest.mark.parametrize("configured", [True, None])
def test_no_key_is_made_beside_data_that_another_may_have_closed(configured):
    with pytest.raises(KubeadmError) as caught:
        plan_encryption(EncryptionState(file=False, data=True, configured=configured))
    assert caught.value.code == "ENCRYPTION_KEY_LOST"


def changed(**providers):
    return json.dumps({**GOOD, "resources": [{"resources": ["secrets"], "providers": [providers]}]}).encode()


def keyed(*keys):
    return changed(secretbox={"keys": [{"name": name, "secret": secret} for name, secret in keys]})


SECRET = base64.b64encode(KEY).decode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"a: [", id="no YAML"),
        pytest.param(render_encryption(KEY) + b"---\n" + render_encryption(KEY), id="two documents"),
        pytest.param(json.dumps({**GOOD, "kind": "Policy"}).encode(), id="another kind"),
        pytest.param(json.dumps({**GOOD, "apiVersion": "v1"}).encode(), id="another version"),
        pytest.param(render_encryption(KEY).replace(b"secrets", b"events"), id="Secrets are not among the resources"),
        pytest.param(changed(identity={}), id="Secrets are written in clear"),
        pytest.param(changed(aescbc={"keys": [{"name": "a", "secret": SECRET}]}), id="another cipher"),
        pytest.param(keyed(), id="no key"),
        pytest.param(keyed(("a", SECRET), ("a", SECRET)), id="two keys of one name"),
        pytest.param(keyed(("A_", SECRET)), id="a name that is none"),
        pytest.param(keyed(("a", "not base64")), id="a key that is no base64"),
        pytest.param(keyed(("a", base64.b64encode(KEY[:31]).decode())), id="a key that is too short"),
    ],
)
def test_what_does_not_encrypt_secrets_is_refused(content):
    with pytest.raises(KubeadmError) as caught:
        require_encryption(content)
    assert caught.value.code == "ENCRYPTION_MALFORMED"


def test_a_refusal_shows_no_key():
    with pytest.raises(KubeadmError) as caught:
        require_encryption(b"secret: " + SECRET.encode() + b"\n  x: [")
    assert SECRET not in f"{caught.value.message} {caught.value!r} {caught.value.__context__ or ''}"[:200]
    assert caught.value.__suppress_context__


def test_a_second_key_and_more_resources_are_fine():
    entry = json.loads(keyed(("new", SECRET), ("key-1", base64.b64encode(KEY[::-1]).decode())))["resources"][0]
    require_encryption(json.dumps({**GOOD, "resources": [{**entry, "resources": ["configmaps", "secrets"]}]}).encode())


def test_reset_removes_it(control_plane, place, locked):
    control_plane.apply(control_plane.plan())
    Reset(locked).apply(Reset(locked).plan())
    assert not place.exists()
