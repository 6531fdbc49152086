# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's arguments and authenticators on a control plane that runs: once, wholly, and as before where it fails."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    authentication_path,
    render_authentication,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import (
    COMPONENTS,
    authentication_file,
    parse_arguments,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_settings import PlaneSettings
from ansible_collections.attested.kubernetes.tests.unit.fakes.control_plane import Pods, Programs, Turns
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

SERVER = "kube-apiserver"
OURS = {
    SERVER: {
        "audit-log-maxage": "30",
        "audit-log-maxbackup": "10",
        "audit-log-maxsize": "100",
        "enable-admission-plugins": "DenyServiceExternalIPs,NodeRestriction",
    },
    "kube-controller-manager": {"terminated-pod-gc-threshold": "1000"},
}
WANTED = parse_arguments({SERVER: {"v": 4, "audit-log-maxage": 90}, "etcd": {"max-wals": 3}})
NONE = parse_arguments({})
TOKENS = authentication_file([{"issuer": {"url": "https://login.example", "audiences": ["kubernetes"]}}])


class Bed:
    """One control plane as kubeadm made it, and its API server, which takes what it reads."""

    def __init__(self, root: Path) -> None:
        self.paths = KubernetesPaths(root=root)
        self.programs, self.pods, self.turns = Programs(), Pods(self.paths), Turns()
        self.pods.manifest.parent.mkdir(parents=True)
        for name in COMPONENTS:
            words = [name, *(f"--{one}={value}" for one, value in OURS.get(name, {}).items()), "--kept=by-a-person"]
            pod = {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"command": words}]}}
            self.pods.manifest.with_name(f"{name}.yaml").write_text(json.dumps(pod), encoding="utf-8")
        authentication_path(self.paths).parent.mkdir(parents=True)
        authentication_path(self.paths).write_bytes(render_authentication())
        self.refuses = self.sleeps = False
        kubectl = Kubectl(self.programs, kubeconfig=Path("admin.conf"), clock=FakeClock())  # type: ignore[arg-type]
        self.plane = PlaneSettings(
            self.paths, self.pods, kubectl, turns=self.turns, metrics=self.metrics, clock=FakeClock()
        )
        self.plane.place(NONE, None)
        assert self.pods.restarts == []

    def metrics(self) -> str:
        content = authentication_path(self.paths).read_bytes()
        is_new = content != render_authentication()
        used = render_authentication() if self.refuses or self.sleeps else content
        name = "apiserver_authentication_config_controller"
        return (
            f'{name}_automatic_reloads_total{{apiserver_id_hash="x",status="failure"}} {int(self.refuses and is_new)}\n'
            f'{name}_last_config_info{{apiserver_id_hash="x",hash="sha256:{hashlib.sha256(used).hexdigest()}"}} 1\n'
        )

    def told(self, component: str) -> dict[str, str]:
        return self.pods.arguments(component)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_arguments_come_once_and_go_again(bed: Bed) -> None:
    before = {name: bed.told(name) for name in COMPONENTS}
    assert bed.plane.differs(WANTED, None) == [
        "etcd: --max-wals=3",
        "kube-apiserver: --audit-log-maxage=90",
        "kube-apiserver: --v=4",
        "later control planes: the same arguments",
    ]
    bed.plane.place(WANTED, None)
    assert bed.told(SERVER) == {**before[SERVER], "v": "4", "audit-log-maxage": "90"}
    assert (bed.programs.told()["v"], bed.pods.restarts) == ("4", ["etcd", SERVER])
    assert bed.plane.differs(WANTED, None) == []
    bed.plane.place(WANTED, None)
    assert bed.pods.restarts == ["etcd", SERVER]
    assert bed.plane.differs(NONE, None)[:3] == [
        "etcd: no --max-wals",
        "kube-apiserver: --audit-log-maxage=30",
        "kube-apiserver: no --v",
    ]
    bed.plane.place(NONE, None)
    assert {name: bed.told(name) for name in COMPONENTS} == before
    assert ("v" in bed.programs.told(), bed.plane.differs(NONE, None), bed.turns.taken) == (False, [], 0)


def test_one_that_is_not_well_gets_its_arguments_of_before_and_nobody_later_gets_the_new_ones(bed: Bed) -> None:
    before = bed.told(SERVER)
    bed.pods.is_ill = True
    with pytest.raises(AttestedError) as caught:
        bed.plane.place(parse_arguments({SERVER: {"no-such-argument": 1}}), None)
    assert caught.value.code == "CONTROL_PLANE_COMPONENT_UNHEALTHY"
    assert (bed.told(SERVER), bed.turns.taken) == (before, 0)
    assert "no-such-argument" not in bed.programs.told()
    bed.pods.is_ill = False
    bed.plane.place(WANTED, None)
    assert bed.plane.differs(WANTED, None) == []


def test_what_was_interrupted_behind_a_restart_is_done_again_and_can_still_go(bed: Bed) -> None:
    def interrupted(*_words: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    restart, bed.pods.restart = bed.pods.restart, interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        bed.plane.place(parse_arguments({SERVER: {"v": 4}}), None)
    bed.pods.restart = restart  # type: ignore[method-assign]
    bed.pods.restart(SERVER, {"v": "4"})
    bed.plane.place(NONE, None)
    assert "v" not in bed.told(SERVER)


def test_a_broken_record_takes_nothing_away(bed: Bed) -> None:
    bed.plane.place(WANTED, None)
    bed.paths.site_arguments.write_text("[", encoding="utf-8")
    bed.plane.place(NONE, None)
    assert bed.told(SERVER)["kept"] == "by-a-person"


def test_authenticators_are_taken_without_a_restart(bed: Bed) -> None:
    assert bed.plane.differs(None, TOKENS) == [f"kube-apiserver: {authentication_path(bed.paths)}"]
    bed.plane.place(None, TOKENS)
    assert (authentication_path(bed.paths).read_bytes(), bed.pods.restarts) == (TOKENS, [])
    assert bed.plane.differs(None, TOKENS) == []
    bed.plane.place(None, authentication_file([]))
    assert authentication_path(bed.paths).read_bytes() == render_authentication()


@pytest.mark.parametrize("fault", ["refuses", "sleeps"])
def test_authenticators_that_are_not_taken_are_put_back(bed: Bed, fault: str) -> None:
    setattr(bed, fault, True)
    with pytest.raises(AttestedError, match="attested_authenticators") as caught:
        bed.plane.place(WANTED, TOKENS)
    assert (caught.value.code, bed.pods.restarts, bed.turns.taken) == ("CONFIG_INVALID", [], 0)
    assert authentication_path(bed.paths).read_bytes() == render_authentication()
