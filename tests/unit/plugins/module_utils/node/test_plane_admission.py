# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running API server is told what it holds Pods and Services to: once, wholly, and as before where it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.files import has_loaded
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import admission_file, admission_path
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, PodSecurity
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.static_pods import stamped
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_settings import PlaneAdmission
from ansible_collections.attested.kubernetes.tests.unit.fakes.control_plane import Pods, Programs, Turns
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

RESTRICTED = PodSecurity(level="restricted", exempt=("kube-flannel",))
MANIFEST = json.dumps(
    {
        "kind": "Pod",
        "metadata": {"name": "kube-apiserver"},
        "spec": {"containers": [{"command": ["kube-apiserver", "--enable-admission-plugins=NodeRestriction,Own"]}]},
    }
).encode()


class Bed:
    """One control plane that was made before."""

    def __init__(self, root: Path) -> None:
        self.paths = KubernetesPaths(root=root)
        self.programs, self.pods, self.turns = Programs(), Pods(self.paths), Turns()
        self.pods.manifest.parent.mkdir(parents=True)
        self.pods.manifest.write_bytes(MANIFEST)
        kubectl = Kubectl(self.programs, kubeconfig=Path("admin.conf"), clock=FakeClock())  # type: ignore[arg-type]
        self.plane = PlaneAdmission(self.paths, self.pods, kubectl, turns=self.turns)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_one_that_was_made_before_is_told_once_and_so_is_what_joins_later(bed: Bed) -> None:
    assert [one.partition(":")[0] for one in bed.plane.differs(PodSecurity())] == ["API server", "later control planes"]
    bed.plane.place(PodSecurity())
    told = bed.pods.arguments("kube-apiserver")
    wanted = {
        "admission-control-config-file": str(admission_path(bed.paths)),
        "enable-admission-plugins": "DenyServiceExternalIPs,NodeRestriction,Own",
    }
    assert told == wanted
    assert bed.programs.told() == {**wanted, "enable-admission-plugins": "DenyServiceExternalIPs,NodeRestriction"}
    assert admission_path(bed.paths).read_bytes() == admission_file(PodSecurity())
    assert bed.plane.differs(PodSecurity()) == ()
    bed.plane.place(PodSecurity())
    assert (bed.pods.restarts, bed.turns.taken) == (["kube-apiserver"], 0)


def test_another_word_of_the_site_starts_it_anew(bed: Bed) -> None:
    bed.plane.place(PodSecurity())
    (line,) = bed.plane.differs(RESTRICTED)
    assert "held to restricted, but for kube-flannel, kube-system" in line
    bed.plane.place(RESTRICTED)
    assert (len(bed.pods.restarts), bed.plane.differs(RESTRICTED)) == (2, ())


def test_one_that_was_stopped_behind_the_file_is_done_again(bed: Bed) -> None:
    """The file alone is not what an API server has read."""
    bed.plane.place(PodSecurity())
    admission_path(bed.paths).write_bytes(admission_file(RESTRICTED))
    assert bed.plane.differs(RESTRICTED)
    assert bed.plane.differs(PodSecurity())


@pytest.mark.parametrize("was_told", [False, True])
def test_one_that_does_not_come_up_is_as_it_was(bed: Bed, was_told: bool) -> None:
    if was_told:
        bed.plane.place(PodSecurity())
    before, bed.pods.is_ill = bed.pods.manifest.read_bytes(), True
    with pytest.raises(KubeadmError) as caught:
        bed.plane.place(RESTRICTED)
    assert caught.value.code == "CONTROL_PLANE_COMPONENT_UNHEALTHY"
    assert bed.pods.manifest.read_bytes() == before
    assert admission_path(bed.paths).exists() is was_told
    assert not has_loaded(bed.paths.admission_taken, admission_path(bed.paths), admission_file(RESTRICTED))
    assert bed.turns.taken == 0


def test_a_configuration_of_somebody_elses_is_left_alone(bed: Bed) -> None:
    bed.pods.manifest.write_bytes(stamped(MANIFEST, "then", {"admission-control-config-file": "/etc/own.yaml"}))
    with pytest.raises(KubeadmError) as caught:
        bed.plane.differs(PodSecurity())
    assert caught.value.code == "ADMISSION_FOREIGN"
