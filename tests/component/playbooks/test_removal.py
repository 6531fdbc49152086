# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`remove`, `replace` and `restore` where machines are gone: on which machine they call what, in which order.

The playbooks are as they are; each role and module is replaced: it writes down that it was called, on which machine.
A machine that is gone is an ssh port that nobody listens on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
OPTIONS = (
    "admission", "authority", "backup", "compromised", "confirm_healthy", "ek_aliases", "ek_sha256",
    "endorsement_authorities", "identity_file", "insecure_first_use", "kind", "known_by", "name", "node",
    "policy_directory", "profiles", "purpose", "replaced", "replacing", "second_key", "site", "state", "tcti", "what",
)  # fmt: skip
MODULES = (
    "attestation_key", "attestation_verification", "etcd_restoration", "etcd_snapshot", "node_admission",
    "node_identity", "node_status_info", "rotation_info", "tpm_authorization", "trace",
)  # fmt: skip
AUTHORITY = "0123456789abcdef"
ROLES = {
    "attestation_policy": ("main",),
    "node_removal": ("main", "gone", "reset", "revoke"),
    "rotation": ("main",),
}
REMOVED = "{{ node_removal_name }} answers={{ node_removal_answers }} etcd={{ node_removal_control_plane }}"
SAID = {
    "node_removal": REMOVED,
    "node_removal: gone": REMOVED,
    "node_removal: reset": "by {{ node_removal_api_host }}",
    "node_removal: revoke": "{{ node_removal_etcd_member or 'a worker' }} compromised={{ node_removal_compromised }}"
    "{{ ' ' ~ node_removal_authority if node_removal_authority | default('') else '' }}",
    "rotation": "{{ rotation_old }}",
}
GONE: dict[str, Any] = {"ansible_connection": "ssh", "ansible_port": 9, "ansible_host": "127.0.0.1"}
HERE: dict[str, Any] = {"ansible_connection": "local", "ansible_host": "127.0.0.1"}


class Site:
    """A site with three control planes and a worker, of which some are gone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trace = root / "trace"
        self.collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(ROOT / "playbooks", self.collection / "playbooks")
        for book in (self.collection / "playbooks").glob("*.yml"):
            text = book.read_text(encoding="utf-8").replace("/opt/attested/venv/bin/python", sys.executable)
            book.write_text(text, encoding="utf-8")
        replace_modules(self.collection, Path(__file__).with_name("traced.py"), root, dict.fromkeys(MODULES, OPTIONS))
        for role, entries in ROLES.items():
            for entry in entries:
                self._traced(role, entry)
        (root / "bin").mkdir()
        self.kubectl("exit 0")
        self.known: dict[str, Any] = {"attested_ek": "sha256:old"}
        self.admissions: dict[str, str] = {}

    def _role(self, name: str) -> Path:
        return self.collection / "roles" / name

    def _traced(self, role: str, entry: str) -> None:
        what = role if entry == "main" else f"{role}: {entry}"
        words = [what, "on {{ inventory_hostname }}", SAID.get(what, "")]
        result = "node_removal_revoked" if entry == "revoke" else f"{role}_done"
        tasks = [{"attested.kubernetes.trace": {"what": " ".join(words).strip()}, "register": result}]
        folder = self._role(role) / "tasks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{entry}.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")

    def _host(self, name: str, *, gone: bool) -> dict[str, Any]:
        decided = {"attested_admission": self.admissions[name]} if name in self.admissions else {}
        return {**(GONE if gone else HERE), **self.known, **decided, "attested_tcti": f"tpm-of-{name}"}

    def kubectl(self, script: str) -> None:
        """Let kubectl of every machine that is there do this."""
        program = self.root / "bin" / "kubectl"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o700)

    def run(self, playbook: str, *options: str, gone: tuple[str, ...] = (), ends: int = 0) -> tuple[list[str], str]:
        """Return what was called, and what was printed."""
        names = {"control_planes": ("cp-1", "cp-2", "cp-3"), "workers": ("w-1",)}
        groups = {
            group: {"hosts": {name: self._host(name, gone=name in gone) for name in hosts}}
            for group, hosts in names.items()
        }
        common = {
            "ansible_python_interpreter": sys.executable,
            "attested_policy_dir": "/policy",
            "attested_cluster_name": "prod",
            "attested_api_endpoint": "api.prod.example:6443",
            "attested_profiles": ["one"],
        }
        (self.root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"vars": common, "children": groups}}))
        answers = {
            "rotation_info": {"plane": {"signers": {"cluster": AUTHORITY}, "staged": {}}},
            "node_admission": {"held_authority": AUTHORITY},
            "node_status_info": {"phase": "Joined"},
            "etcd_restoration": {"manifest": {}},
            "trace": {"held_authority": AUTHORITY},
            "attestation_verification": {"ek_aliases": {}, "ek_sha256": "new", "known_by": "console fingerprint"},
        }
        (self.root / "answers.json").write_text(json.dumps({"shown": ["tcti"], "results": answers}))
        self.trace.write_text("", encoding="utf-8")
        argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "-f", "8", f"attested.kubernetes.{playbook}", *options]
        env = {
            "PATH": f"{self.root / 'bin'}:{BIN}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "ANSIBLE_COLLECTIONS_PATH": str(self.root),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_SSH_ARGS": "-o ConnectTimeout=5 -o ControlMaster=no",
        }
        done = subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == ends, done.stdout + done.stderr
        return self.trace.read_text(encoding="utf-8").splitlines(), done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def removed(name: str, *, by: str, answers: bool, etcd: bool, policy: tuple[str, ...]) -> list[str]:
    """Return what a removal calls."""
    words = f"on {by} {name} answers={answers} etcd={etcd}"
    reset = [f"node_removal: reset on {name} by {by}"] if answers else []
    looked = ["node_status_info"] * len([one for one in policy if one != "cp-1"])
    return [
        f"node_removal {words}",
        *reset,
        f"node_removal: gone {words}",
        "node_identity",
        *looked,
        *(f"attestation_policy on {one}" for one in policy),
    ]


def test_a_worker_is_removed_by_the_first_control_plane_while_it_answers(site: Site) -> None:
    called, _said = site.run("remove", "-e", "confirm=w-1")
    assert sorted(called) == sorted(
        removed("w-1", by="cp-1", answers=True, etcd=False, policy=("cp-1", "cp-2", "cp-3"))
    )
    assert called[:4] == removed("w-1", by="cp-1", answers=True, etcd=False, policy=())


@pytest.mark.parametrize(
    ("name", "gone", "by", "policy"),
    [
        pytest.param(
            "w-1", ("w-1", "cp-1"), "cp-2", ("cp-2", "cp-3"), id="a worker, with the first control plane gone"
        ),
        pytest.param("cp-1", ("cp-1",), "cp-2", ("cp-2", "cp-3"), id="the first control plane, which is gone"),
    ],
)
def test_a_machine_that_is_gone_is_removed_without_it(
    site: Site, name: str, gone: tuple[str, ...], by: str, policy: tuple[str, ...]
) -> None:
    called, _said = site.run("remove", "-e", f"confirm={name}", gone=gone)
    assert sorted(called) == sorted(removed(name, by=by, answers=False, etcd=name != "w-1", policy=policy))


def replaced(name: str, *, by: str, compromised: bool, policy: tuple[str, ...]) -> list[str]:
    """Return what a replacement calls."""
    member = name if name.startswith("cp") else "a worker"
    return [
        f"tpm_authorization tpm-of-{name}",
        f"attestation_key tpm-of-{name}",
        "attestation_verification",
        f"node_removal: revoke on {by} {member} compromised={compromised}",
        "node_identity",
        *["node_status_info"] * len([one for one in policy if one != "cp-1"]),
        *(f"attestation_policy on {one}" for one in policy),
    ]


def test_a_worker_is_replaced_by_the_first_control_plane_while_it_answers(site: Site) -> None:
    called, _said = site.run("replace", "-e", "confirm=w-1")
    assert sorted(called) == sorted(replaced("w-1", by="cp-1", compromised=False, policy=("cp-1", "cp-2", "cp-3")))
    assert called[:5] == replaced("w-1", by="cp-1", compromised=False, policy=())


def test_the_first_control_plane_is_replaced_by_another_one(site: Site) -> None:
    """The machine in its place answers, and is not asked what the cluster says."""
    called, _said = site.run("replace", "-e", "confirm=cp-1")
    assert sorted(called) == sorted(replaced("cp-1", by="cp-2", compromised=False, policy=("cp-2", "cp-3")))


def rotated(*, by: tuple[str, ...]) -> list[str]:
    """Return what a rotation calls, on the nodes that the cluster has then."""
    return [f"rotation on {name} {AUTHORITY}" for name in by]


NODES_WITHOUT_CP_1 = 'case "$*" in *"get nodes"*) printf "node/cp-2\\nnode/cp-3\\nnode/w-1\\n" ;; esac'


@pytest.mark.parametrize("known", ["old", "new"], ids=["at once", "the site was written before, and no more"])
def test_what_a_compromised_control_plane_held_is_rotated_once_it_is_banned(site: Site, known: str) -> None:
    site.kubectl(NODES_WITHOUT_CP_1)
    site.known = {"attested_ek": f"sha256:{known}", "attested_ek_replaced": ["sha256:before"]}
    called, _said = site.run("replace", "-e", "confirm=cp-1", "-e", "compromised=true")
    ban = "node_removal: revoke on cp-2 cp-1 compromised=True " + AUTHORITY if known == "old" else "node_admission"
    assert called[3:5] == ["rotation_info", ban]
    rotation = rotated(by=("cp-2", "cp-3", "w-1"))
    assert sorted(called[-3:]) == sorted(rotation), "the machine in its place is no node yet, and is not asked"


def test_a_compromised_worker_held_nothing_that_is_rotated(site: Site) -> None:
    called, _said = site.run("replace", "-e", "confirm=w-1", "-e", "compromised=true")
    assert sorted(called) == sorted(replaced("w-1", by="cp-1", compromised=True, policy=("cp-1", "cp-2", "cp-3")))


def test_a_compromised_control_plane_that_is_revoked_goes_out_of_etcd_before_the_rotation(site: Site) -> None:
    site.kubectl(NODES_WITHOUT_CP_1)
    called, _said = site.run("revoke", "-e", "confirm=cp-1", "-e", "compromised=true", gone=("cp-1",))
    assert called[:3] == [
        "rotation_info",
        f"node_removal: revoke on cp-2 cp-1 compromised=True {AUTHORITY}",
        "node_identity",
    ]
    assert sorted(called[3:]) == sorted(rotated(by=("cp-2", "cp-3", "w-1")))


def test_without_that_word_a_revoked_control_plane_stays_in_etcd_and_nothing_is_rotated(site: Site) -> None:
    called, _said = site.run("revoke", "-e", "confirm=cp-1", gone=("cp-1",))
    assert called == ["node_removal: revoke on cp-2 a worker compromised=False", "node_identity"]


def test_check_mode_rotates_nothing(site: Site) -> None:
    site.kubectl(NODES_WITHOUT_CP_1)
    called, _said = site.run("replace", "-e", "confirm=cp-1", "-e", "compromised=true", "--check")
    assert not [one for one in called if one.startswith("rotation on")]


def test_nothing_is_done_where_no_other_control_plane_answers(site: Site) -> None:
    called, said = site.run("remove", "-e", "confirm=cp-1", gone=("cp-2", "cp-3"), ends=2)
    assert "CONTROL_PLANE_NONE_ANSWERS" in said
    assert called == []


def test_a_machine_whose_api_server_is_down_does_not_answer(site: Site) -> None:
    site.kubectl("echo refused >&2; exit 1")
    called, said = site.run("replace", "-e", "confirm=w-1", ends=2)
    assert "CONTROL_PLANE_NONE_ANSWERS" in said
    assert called == []


def test_remove_asks_which_node_is_meant(site: Site) -> None:
    called, said = site.run("remove", "-e", "confirm=w-9", ends=2)
    assert "CONFIRMATION_MISSING" in said
    assert called == []


RESTORE = ("restore", "-e", "confirm=cp-2", "-e", "backup=etcd.age", "-e", "kit_identity_file=identity.txt")
LOST = ("cp-1", "cp-3")


def deleted(called: list[str]) -> list[str]:
    """Return what kubectl was to delete, without the option that is the same each time."""
    words = (one.partition(" delete ")[2].split() for one in called if one.startswith("kubectl "))
    return sorted(" ".join(sorted(set(one) - {"--wait=false"})) for one in words)


@pytest.mark.parametrize(
    ("admissions", "again"),
    [
        pytest.param({}, [], id="no machine was revoked"),
        pytest.param({"w-1": "Approved", "cp-3": "Refused"}, [], id="others are no reason"),
        pytest.param({"w-1": "Revoked"}, ["--ignore-not-found nodes w-1"], id="a revoked machine loses its Node again"),
    ],
)
def test_a_restore_deletes_nodes_of_revoked_machines_after_the_policy(
    site: Site, admissions: dict[str, str], again: list[str]
) -> None:
    """Before it, the kubelet of such a machine may write, and would make its Node again."""
    site.kubectl(f'echo "kubectl $*" >> {site.trace}')
    site.admissions = admissions
    called, _said = site.run(*RESTORE, gone=LOST)
    applied = called.index("attestation_policy on cp-2")
    pods = [
        f"--field-selector=spec.nodeName={one} --force --grace-period=0 --namespace=kube-system pods" for one in LOST
    ]
    assert deleted(called[:applied]) == [*pods, "--ignore-not-found cp-1 cp-3 nodes"]
    assert deleted(called[applied:]) == again


def test_check_mode_of_a_restore_deletes_nothing(site: Site) -> None:
    site.kubectl(f'echo "kubectl $*" >> {site.trace}')
    site.admissions = {"w-1": "Revoked"}
    called, _said = site.run(*RESTORE, "--check", gone=LOST)
    assert "etcd_restoration" in called
    assert [one for one in called if one.startswith(("kubectl ", "attestation_policy"))] == []
