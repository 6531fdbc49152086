# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`rotate_authorities` as Ansible runs it: what it does where, in which order, where it stops, and what it says.

Playbook, role and plan are as they are. A module that changes a node is replaced: it changes a state in a file instead,
and writes down that it was called; kubectl does so too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

BIN = Path(sys.executable).parent
NAMES = ("cluster", "etcd", "front-proxy", "service-accounts")
OLD, NEW = "0123456789abcdef", "fedcba9876543210"
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
OPTIONS = {
    "admin_certificate": ("request",),
    "admin_kubeconfig": ("site", "cluster_ca", "certificate", "cluster_name", "server", "tls_server_name"),
    "join_turn": ("holder", "state"),
    "kubelet_authorities": (),
    "rotation": ("kind", "old", "found", "site"),
    "rotation_info": ("kind", "device"),
    "rotation_phase": ("kind", "plan", "handle", "sealed"),
    "rotation_recipient": ("kind", "site", "policy_directory", "profiles", "endorsement_authorities", "names", "offer"),
    "rotation_share": ("kind", "handle", "orders"),
}
KUBECTL = """#!/bin/sh
case "$*" in
  *"get nodes"*) cat {nodes} ;;
  *kube-root-ca.crt*) echo "PEM {old}"; echo "PEM {new}" ;;
  *"get configmap extension"*) echo configmap/extension-apiserver-authentication ;;
  *"get daemonset/kube-proxy"*) echo daemonset.apps/kube-proxy ;;
  *"get deployment/coredns"*) echo deployment.apps/coredns ;;
  *"rollout restart"*|*delete*) echo "kubectl $*" | sed 's/ *--[a-z-]*=[^ ]*//g; s/ *--[a-z-]*$//' >> {trace} ;;
esac
"""


class Site:
    """Three control planes (or fewer) and a worker, as a state in a file."""

    BOOK = "rotate_authorities"
    CLUSTER = "authority_cluster.py"
    OPTIONS: ClassVar[dict[str, tuple[str, ...]]] = OPTIONS

    def __init__(self, root: Path, planes: int = 3) -> None:
        self.root = root
        self.trace = root / "trace"
        self.planes = [f"cp-{number}" for number in range(1, planes + 1)]
        self.nodes = [*self.planes, "w-1"]
        self.collection = root / "ansible_collections" / "attested" / "kubernetes"
        books = self.collection / "playbooks"
        books.mkdir(parents=True)
        for name in ("answering.yml", f"{self.BOOK}.yml"):
            text = (ROOT / "playbooks" / name).read_text(encoding="utf-8")
            (books / name).write_text(text.replace("/opt/attested/venv/bin/python", sys.executable), encoding="utf-8")
        shutil.copytree(ROOT / "roles" / "rotation", self.collection / "roles" / "rotation")
        program = Path(__file__).with_name(self.CLUSTER)
        replace_modules(self.collection, program, root, {**self.OPTIONS, "tpm_authorization": ("tcti",)})
        self._machines()

    def _machines(self) -> None:
        self.name_nodes(*self.nodes)
        (self.root / ".secrets").mkdir()
        (self.root / ".secrets" / "admin.kubeconfig").write_text("old")
        (self.root / "bin").mkdir()
        program = self.root / "bin" / "kubectl"
        words = {"old": OLD, "new": NEW, "trace": self.trace, "nodes": self.root / "nodes"}
        program.write_text(KUBECTL.format(**words), encoding="utf-8")
        program.chmod(0o700)
        self.write(sick="", now=NOW.isoformat(), **self.first())

    def first(self) -> dict[str, Any]:
        """Return what the cluster looks like before a rotation."""
        return {
            "planes": {name: first_state() for name in self.planes},
            "kubelets": {name: {"trusted": [OLD], "named": [OLD], "issued": OLD} for name in self.nodes},
            "kubeconfig": OLD,
        }

    def name_nodes(self, *names: str) -> None:
        """Let the cluster say that these are its nodes."""
        (self.root / "nodes").write_text("".join(f"node/{name}\n" for name in names))

    def write(self, **values: Any) -> None:
        """Change what the cluster looks like."""
        file = self.root / "state.json"
        state = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**state, **values}))

    @property
    def state(self) -> dict[str, Any]:
        """What the cluster looks like."""
        found: dict[str, Any] = json.loads((self.root / "state.json").read_text())
        return found

    def run(self, *options: str, ends: int = 0, hosts: tuple[str, ...] = ()) -> tuple[list[str], str]:
        """Return what was done, and what was printed."""
        groups = {"control_planes": self.planes, "workers": ["w-1", *hosts]}
        children = {group: {"hosts": {name: self._host(name) for name in names}} for group, names in groups.items()}
        common = {
            "ansible_python_interpreter": sys.executable,
            "attested_policy_dir": "/policy",
            "attested_profiles": ["one"],
            "attested_cluster_name": "prod",
            "attested_api_endpoint": "api.prod.example:6443",
        }
        (self.root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"vars": common, "children": children}}))
        self.trace.write_text("", encoding="utf-8")
        book = f"attested.kubernetes.{self.BOOK}"
        argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "-f", "8", book, *options]
        env = {
            "PATH": f"{self.root / 'bin'}:{BIN}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "ANSIBLE_COLLECTIONS_PATH": str(self.root),
            "ANSIBLE_PIPELINING": "true",
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES)),
        }
        done = subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == ends, done.stdout + done.stderr
        return self.trace.read_text(encoding="utf-8").splitlines(), done.stdout

    def _host(self, name: str) -> dict[str, str]:
        """Return the variables of a host; by its temporary directory a module knows where it runs."""
        return {"ansible_connection": "local", "ansible_remote_tmp": f"{self.root}/tmp/{name}", **self.variables(name)}

    def variables(self, _name: str) -> dict[str, str]:
        """Return what else the inventory says of a host."""
        return {}


def first_state() -> dict[str, Any]:
    """Return a control plane before its first rotation."""
    return {
        "signers": dict.fromkeys(NAMES, OLD),
        "trusted": {name: [OLD] for name in NAMES},
        "issued": {name: [OLD] for name in NAMES[:3]},
        "staged": {},
        "taken": True,
        "since": (NOW - timedelta(days=1)).isoformat(),
    }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def of_planes(phase: str) -> list[str]:
    return [f"{phase} on cp-{number}" for number in (1, 2, 3)]


KUBELETS = {"kubelet on cp-1", "kubelet on cp-2", "kubelet on cp-3", "kubelet on w-1"}
CONFIRM = ("-e", f"confirm={OLD}")
RESTARTS = ["kubectl rollout restart daemonset/kube-proxy", "kubectl rollout restart deployment/coredns"]


def test_the_whole_way_takes_two_runs_and_a_third_one_changes_nothing(site: Site) -> None:
    """The first one ends where tokens have to age, and says so; each control plane goes alone, kubelets after them."""
    called, said = site.run(*CONFIRM)
    assert called[:1] == ["make on cp-1"]
    assert sorted(called[1:3]) == ["share on cp-2", "share on cp-3"]
    assert called[3:7] == [*of_planes("trust"), "kubelet on w-1"], "kubelets of control planes were told with them"
    assert called[7:13] == ["kubeconfig", *RESTARTS, *of_planes("issue")]
    assert called[13:14] == ["kubeconfig"], "the other one signs now"
    assert set(called[14:]) == KUBELETS
    assert len(called) == 14 + len(KUBELETS)
    assert "Run the same command again at 2026-11-22T13:00:00Z or later" in said
    assert site.state["kubeconfig"] == f"{NEW} {OLD}"

    called, said = site.run(*CONFIRM)
    assert (called, "2026-11-22T13:00:00Z" in said) == ([], True), "too early: nothing is touched"

    site.write(now=(NOW + timedelta(hours=1)).isoformat())
    called, said = site.run(*CONFIRM)
    assert called[:5] == [*of_planes("retire"), "kubeconfig", "kubelet on w-1"]
    assert called[5:6] == ["kubectl delete configmap extension-apiserver-authentication"]
    assert sorted(called[6:]) == of_planes("forget")
    assert f"The cluster CA in force is {NEW}" in said
    assert "master secret" in said

    called, said = site.run(*CONFIRM)
    assert (called, "changed=0" in said, f"Nothing is left of the cluster CA {OLD}" in said) == ([], True, True)
    assert "changed=1" not in said


def test_check_mode_without_a_name_says_which_ca_is_in_force_and_touches_nothing(site: Site) -> None:
    called, said = site.run("--check")
    assert called == []
    assert f"rotate_authorities -e confirm={OLD}" in said
    called, said = site.run("--check", *CONFIRM)
    assert called == []
    assert "retire: remove the old CAs and keys from all trust bundles" in said


@pytest.mark.parametrize("confirm", [(), ("-e", "confirm=cp-1"), ("-e", "confirm=")])
def test_without_a_name_nothing_begins(site: Site, confirm: tuple[str, ...]) -> None:
    called, said = site.run(*confirm, ends=2)
    assert (called, "CONFIRMATION_MISSING" in said) == ([], True)


def test_the_first_that_does_not_come_up_ends_it_and_the_next_run_goes_on_there(site: Site) -> None:
    site.write(sick="trust on cp-2")
    called, _said = site.run(*CONFIRM, ends=2)
    assert called[3:] == ["trust on cp-1"]
    site.write(sick="")
    called, _said = site.run(*CONFIRM)
    assert called[:3] == ["trust on cp-2", "trust on cp-3", "kubelet on w-1"]


def test_a_cluster_with_another_node_is_not_begun(site: Site) -> None:
    site.write(kubelets={**site.state["kubelets"], "w-9": {}})
    site.name_nodes(*site.nodes, "w-9")
    called, said = site.run(*CONFIRM, ends=2)
    assert (called, "ROTATION_NODES_UNREACHED" in said) == ([], True)


def test_one_control_plane_alone_leaves_out_who_is_no_node_and_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    """It needs nobody to give anything to; a host of the inventory is no node yet, or no longer."""
    site = Site(tmp_path, planes=1)
    (site.root / ".secrets" / "admin.kubeconfig").unlink()
    called, _said = site.run(*CONFIRM, hosts=("w-2",))
    assert called[:3] == ["make on cp-1", "trust on cp-1", "kubelet on w-1"]
    assert len(called) > len(site.nodes)
    assert not [one for one in called if "w-2" in one]
    assert "kubeconfig" not in called
