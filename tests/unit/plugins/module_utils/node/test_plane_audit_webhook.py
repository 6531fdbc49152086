# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running API server gets the site's audit webhook once, loses it again, and is as before if it does not start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import audit_webhook_path
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import audit_webhook_file
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_settings import PlaneAuditWebhook
from ansible_collections.attested.kubernetes.tests.unit.fakes.control_plane import Pods, Turns

if TYPE_CHECKING:
    from pathlib import Path

ARGUMENT = "audit-webhook-config-file"
FIRST, OTHER = (audit_webhook_file({"url": f"https://audit.example/{number}"}) for number in (1, 2))
COMMAND = ["kube-apiserver", "--goaway-chance=0.001"]
POD = {"kind": "Pod", "metadata": {"name": "kube-apiserver"}, "spec": {"containers": [{"command": COMMAND}]}}


class Bed:
    """One control plane with a running API server."""

    def __init__(self, root: Path) -> None:
        self.paths = KubernetesPaths(root=root)
        self.pods, self.turns = Pods(self.paths), Turns()
        self.pods.manifest.parent.mkdir(parents=True)
        self.pods.manifest.write_bytes(json.dumps(POD).encode())
        self.plane = PlaneAuditWebhook(self.paths, self.pods, turns=self.turns)
        self.place = audit_webhook_path(self.paths)
        self.patch = self.paths.state / "patches/kube-apiserver-audit+json.json"


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_it_is_set_once_and_kept_by_an_upgrade(bed: Bed) -> None:
    assert bed.plane.differs(FIRST) == (f"kube-apiserver: {bed.place}",)
    bed.plane.place(FIRST)
    assert bed.pods.arguments("kube-apiserver") == {"goaway-chance": "0.001", ARGUMENT: str(bed.place)}
    assert bed.place.read_bytes() == FIRST
    assert str(bed.place) in bed.patch.read_text()
    assert bed.plane.differs(FIRST) == ()
    assert (bed.pods.restarts, bed.turns.taken) == (["kube-apiserver"], 0)


def test_another_webhook_restarts_the_api_server(bed: Bed) -> None:
    """It reads the file when it starts; the file alone is not what it uses."""
    bed.plane.place(FIRST)
    bed.place.write_bytes(OTHER)
    assert bed.plane.differs(OTHER)
    assert bed.plane.differs(FIRST)
    bed.plane.place(OTHER)
    assert (len(bed.pods.restarts), bed.plane.differs(OTHER)) == (2, ())


def test_it_is_removed_with_its_file_and_its_patch(bed: Bed) -> None:
    assert bed.plane.differs(b"") == ()
    bed.plane.place(FIRST)
    assert bed.plane.differs(b"") == (f"kube-apiserver: no {bed.place}",)
    bed.plane.place(b"")
    assert bed.pods.arguments("kube-apiserver") == {"goaway-chance": "0.001"}
    assert not bed.place.exists()
    assert not bed.patch.exists()
    assert bed.plane.differs(b"") == ()


@pytest.mark.parametrize("wanted", [OTHER, b""])
@pytest.mark.parametrize("was_set", [False, True])
def test_an_api_server_that_does_not_start_is_as_it_was(bed: Bed, was_set: bool, wanted: bytes) -> None:
    if was_set:
        bed.plane.place(FIRST)
    before, bed.pods.is_ill = bed.pods.manifest.read_bytes(), True
    with pytest.raises(KubeadmError) as caught:
        bed.plane.place(wanted)
    assert caught.value.code == "CONTROL_PLANE_COMPONENT_UNHEALTHY"
    assert bed.pods.manifest.read_bytes() == before
    assert (bed.place.exists(), bed.patch.exists()) == (was_set, was_set)
    assert not was_set or bed.plane.differs(FIRST) == ()
    assert bed.turns.taken == 0
