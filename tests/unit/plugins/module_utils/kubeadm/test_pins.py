# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of static pods by digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import (
    STATIC_PODS,
    ControlPlane,
    parse_pins,
    pinned,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import ControlPlaneMember
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import render_join
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.reset import Reset
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import ClusterSpec, NodeSpec

CLUSTER = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
NODE = NodeSpec(name="cp-1", node_ip="10.0.0.11")
DIGEST = "sha256:" + "ab" * 32


def image(component, **changes):
    return {"component": component, "reference": f"registry.k8s.io/{component}:v1.35.4", "digest": DIGEST, **changes}


GOOD = [image(name) for name in (*STATIC_PODS, "kube-proxy")]


@pytest.fixture
def prepared(locked):
    """A machine that knows the images of its bundle."""
    place = locked.paths.image_pins
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(GOOD))
    return locked


class Healthy:
    def is_ready(self):
        return True


def configuration(machine, name="init"):
    documents = yaml.safe_load_all((machine.paths.state / f"{name}.yaml").read_bytes())
    return {one["kind"]: one for one in documents}


def test_each_static_pod_is_patched_to_its_digest(prepared):
    plane = ControlPlane(CLUSTER, NODE, prepared, health=Healthy())
    plane.apply(plane.plan())
    directory = configuration(prepared)["InitConfiguration"]["patches"]["directory"]
    patches = {path.name: json.loads(path.read_bytes()) for path in (prepared.paths.state / "patches").iterdir()}
    assert directory == str(prepared.paths.state / "patches")
    assert sorted(patches) == [f"{name}+strategic.json" for name in STATIC_PODS]
    assert patches["kube-apiserver+strategic.json"]["spec"]["containers"] == [
        {"name": "kube-apiserver", "image": f"registry.k8s.io/kube-apiserver:v1.35.4@{DIGEST}"}
    ]


def test_a_machine_that_knows_no_images_goes_by_tags(locked):
    plane = ControlPlane(CLUSTER, NODE, locked, health=Healthy())
    plane.apply(plane.plan())
    assert "patches" not in configuration(locked)["InitConfiguration"]
    assert not (locked.paths.state / "patches").exists()


def test_another_bundle_alone_does_not_touch_a_control_plane(prepared):
    plane = ControlPlane(CLUSTER, NODE, prepared, health=Healthy())
    plane.apply(plane.plan())
    prepared.paths.image_pins.write_text(json.dumps([image(name, digest="sha256:" + "0" * 64) for name in STATIC_PODS]))
    again = ControlPlane(CLUSTER, NODE, prepared, health=Healthy()).plan()
    assert (bool(again), again.drifted) == (False, False)


def test_a_further_control_plane_is_patched_too_and_a_worker_is_not(prepared):
    node = pinned(NODE, prepared.paths)
    found = [yaml.safe_load(render_join(node, paths=prepared.paths, control_plane=plane)) for plane in (True, False)]
    assert found[0]["patches"] == {"directory": str(prepared.paths.state / "patches")}
    assert "patches" not in found[1]


def test_a_further_control_plane_has_the_same_patches(prepared):
    member = ControlPlaneMember(NODE, prepared, health=Healthy())
    member.apply(member.plan())
    patches = configuration(prepared, "join-control-plane")["JoinConfiguration"]["patches"]
    assert len([*Path(patches["directory"]).iterdir()]) == len(STATIC_PODS)


def test_reset_forgets_the_patches_and_keeps_what_prepare_wrote(prepared):
    plane = ControlPlane(CLUSTER, NODE, prepared, health=Healthy())
    plane.apply(plane.plan())
    Reset(prepared).apply(Reset(prepared).plan())
    assert not (prepared.paths.state / "patches").exists()
    assert prepared.paths.image_pins.exists()


def test_a_registry_with_a_port_keeps_it():
    images = [image(name, reference=f"mirror.example:5000/k8s/{name}:v1.35.4") for name in STATIC_PODS]
    assert parse_pins(json.dumps(images).encode())["etcd"] == f"mirror.example:5000/k8s/etcd:v1.35.4@{DIGEST}"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"{}", id="no list"),
        pytest.param(json.dumps(GOOD[1:]).encode(), id="one is missing"),
        pytest.param(json.dumps([*GOOD[1:], image("etcd", digest="sha256:ab")]).encode(), id="a short digest"),
        pytest.param(json.dumps([*GOOD[1:], image("etcd", digest=7)]).encode(), id="a digest that is a number"),
        pytest.param(json.dumps([*GOOD[1:], image("etcd", reference="etcd")]).encode(), id="a reference without tag"),
        pytest.param(
            json.dumps([*GOOD[1:], image("etcd", reference="a/b c:1")]).encode(), id="a reference with a blank"
        ),
    ],
)
def test_a_list_that_is_no_list_of_images_is_refused(prepared, content):
    prepared.paths.image_pins.write_bytes(content)
    with pytest.raises(KubeadmError) as caught:
        ControlPlane(CLUSTER, NODE, prepared)
    assert caught.value.code == "IMAGE_PINS_MALFORMED"
