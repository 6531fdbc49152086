# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two roads to a cluster, over ssh and by the bootstrapper: what `init` and `node` call, in which order.

The playbooks are as they are; each role and module is replaced: it writes down that it was called.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
BIN = Path(sys.executable).parent
OPTIONS = (
    "admin_certificate", "allow_cgroup_v1", "at_once", "certificate", "cluster_ca", "cluster_name", "enabled",
    "endorsement_authorities", "exceptions", "extra_sans", "field_manager", "ignore_preflight_errors",
    "kubernetes_version", "manifests", "name", "node_ip", "policy_directory", "port", "profiles", "records",
    "second_node_ip", "send_policy", "server", "service_subnet", "site", "state", "taints", "tcti", "tls_server_name",
    "wait_seconds", "what",
)  # fmt: skip
MODULES = (
    "admin_kubeconfig", "cluster", "cluster_objects", "control_plane_certificates", "init", "kubeadm_node",
    "node_identity", "node_status_info", "node_taints", "policy_record", "tpm_authorization", "trace", "unit",
)  # fmt: skip
ROLES = {
    "attestation_policy": ("main",),
    "bootstrapper": ("joined",),
    "control_plane": ("main", "up", "member", "guards", "certificates_timer", "backup_timer"),
    "join_service": ("main",),
    "key_service": ("main",),
    "verification_service": ("main",),
}
VARIABLES = {
    "ansible_connection": "local",
    "attested_policy_dir": "/policy",
    "attested_profiles": ["one"],
    "attested_cluster_name": "prod",
    "attested_kubernetes_version": "1.35",
    "attested_api_endpoint": "api.prod.example:6443",
    "attested_node_ip": "10.0.0.1",
}


class Site:
    """A site with a control plane and a worker, and the playbooks in a collection that does nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trace = root / "trace"
        self.collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(PLAYBOOKS, self.collection / "playbooks")
        for book in (self.collection / "playbooks").glob("*.yml"):
            text = book.read_text(encoding="utf-8").replace(
                "ansible.builtin.systemd_service:", "attested.kubernetes.unit:"
            )
            book.write_text(text.replace("/opt/attested/venv/bin/python", sys.executable), encoding="utf-8")
        replace_modules(self.collection, Path(__file__).with_name("traced.py"), root, dict.fromkeys(MODULES, OPTIONS))
        for role, entries in ROLES.items():
            for entry in entries:
                self._role(role, entry)
        (root / "site").mkdir()
        (root / "site" / "cluster.yml").write_text("cluster_id: abcd\n", encoding="utf-8")
        groups = {"control_planes": {"hosts": {"cp-1": {}}}, "workers": {"hosts": {"w-1": {}}}}
        hosts = {"nodes": {"vars": VARIABLES, "children": groups}}
        (root / "site" / "hosts.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")

    def _role(self, role: str, entry: str) -> None:
        what = role if entry == "main" else f"{role}: {entry}"
        tasks: list[dict[str, object]] = [{"attested.kubernetes.trace": {"what": what}}]
        if what == "control_plane":
            made = {"complete": "{{ not ansible_check_mode }}", "kubernetes_version": "1.35.4", "cluster_ca": "ca"}
            signed = {**made, "admin_certificate": "certificate"}
            tasks.append({"ansible.builtin.set_fact": {"control_plane_result": signed}})
        if entry == "joined":
            tasks.append({"attested.kubernetes.node_status_info": {}, "register": "bootstrapper_node"})
        folder = self.collection / "roles" / role / "tasks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{entry}.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")

    def run(self, playbook: str, *options: str, **results: dict[str, object]) -> list[str]:
        """Return what was called; modules answer with ``results``."""
        never = {"status": {"ExecMainExitTimestampMonotonic": "0", "ExecMainStatus": "0"}}
        answers = {"results": {"unit": never, **results}}
        (self.root / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
        self.trace.write_text("", encoding="utf-8")
        argv = [BIN / "ansible-playbook", "-i", "hosts.yml", f"attested.kubernetes.{playbook}", *options]
        env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.root), "ANSIBLE_COLLECTIONS_PATH": str(self.root)}
        done = subprocess.run(argv, cwd=self.root / "site", env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return self.trace.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


BY_SSH = ("-e", "attested_bootstrapper=false")
ASKED_OVER_SSH = ("-e", "over_ssh=true")
POLICY_AND_EVIDENCE = ["attestation_policy", "unit", "unit"]
OVER_SSH = [
    "tpm_authorization",
    "cluster",
    "admin_kubeconfig",
    "control_plane",
    "admin_kubeconfig",
    "key_service",
    "attestation_policy",
    "join_service",
    "verification_service",
    "unit",
    "unit",
]


def test_init_over_ssh_goes_as_it_always_did(site: Site) -> None:
    assert site.run("init", *BY_SSH) == OVER_SSH
    assert site.run("init", *BY_SSH, "--check") == [
        "tpm_authorization",
        "cluster",
        "admin_kubeconfig",
        "control_plane",
        "admin_kubeconfig",
        "key_service",
        "join_service",
        "verification_service",
    ]


def test_init_by_the_bootstrapper_asks_nobody_but_the_machines_own_port(site: Site) -> None:
    """The action that hands over passwords of TPMs asks nobody either where the site knows none."""
    assert site.run("init", init={"changed": True, "policy_missing": False}) == [
        "tpm_authorization",
        "init",
    ]
    assert site.run("init", init={"changed": False}) == ["tpm_authorization", "init"]


def test_a_machine_that_made_its_cluster_without_our_policy_gets_it_over_ssh(site: Site) -> None:
    """One of an earlier version reads past the field."""
    called = site.run("init", init={"changed": True, "policy_missing": True})
    assert called == ["tpm_authorization", "init", *POLICY_AND_EVIDENCE]


def test_init_over_ssh_of_a_machine_that_waits_leaves_it_what_is_the_machines(site: Site) -> None:
    called = site.run("init", *ASKED_OVER_SSH, node_status_info={"phase": "Asking"})
    assert called == ["node_status_info", "tpm_authorization", "init", *POLICY_AND_EVIDENCE]


def test_init_over_ssh_of_a_machine_that_is_a_node_already_does_all_of_it(site: Site) -> None:
    """Its bootstrapper has ended: what changed in the site reaches it, and the admin's certificate is renewed."""
    called = site.run("init", *ASKED_OVER_SSH, node_status_info={"phase": "Joined"})
    assert called == ["node_status_info", *OVER_SSH]


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        pytest.param(True, [], id="a cluster that is to be made has no policy to compare"),
        pytest.param(False, ["attestation_policy"], id="one that is there has"),
    ],
)
def test_check_mode_of_init_by_the_bootstrapper(site: Site, changed: bool, more: list[str]) -> None:
    answers: dict[str, dict[str, object]] = {"init": {"changed": changed}, "node_status_info": {"phase": "Fresh"}}
    assert site.run("init", "--check", **answers) == ["tpm_authorization", "init"]
    called = site.run("init", *ASKED_OVER_SSH, "--check", **answers)
    assert called == ["node_status_info", "tpm_authorization", "init", *more]


JOINED: dict[str, object] = {"phase": "Joined"}
AFTER = ["control_plane: guards", "policy_record", "node_identity"]
BY_BOOTSTRAPPER = ["bootstrapper: joined"] * 2 + ["node_status_info"] * 2


def test_node_joins_workers_itself_or_waits_for_them(site: Site) -> None:
    over_ssh = site.run("node", *BY_SSH, node_status_info=JOINED)
    by_bootstrapper = site.run("node", node_status_info=JOINED)
    assert over_ssh[:2] == by_bootstrapper[:2] == ["tpm_authorization"] * 2
    services = ["verification_service"] * 2
    assert over_ssh[2:] == ["unit", "control_plane: up", "kubeadm_node", *services, "node_status_info", *AFTER]
    assert by_bootstrapper[2:] == [*BY_BOOTSTRAPPER, *AFTER]


def test_node_joins_a_worker_itself_where_the_sites_repository_does(site: Site) -> None:
    """It has no bootstrapper; on the machine itself the boot unit says so."""
    called = site.run("node", "-e", "attested_source_url=https://git.example/site.git", node_status_info=JOINED)
    joined = ["bootstrapper: joined", "node_status_info", "kubeadm_node"]
    assert called[2:] == [*joined, "verification_service", *AFTER]


def test_node_asks_no_control_plane_that_has_not_joined_for_disks(site: Site) -> None:
    """A cluster that is not there yet has assigned none."""
    called = site.run("node", node_status_info={"phase": "Prepared"})
    assert called[2:] == [*BY_BOOTSTRAPPER, "node_status_info", "node_identity"]


def test_node_applies_the_labels_of_each_node_on_a_control_plane(site: Site) -> None:
    labels = ("-e", json.dumps({"attested_node_labels": {"rack": "r7"}}))
    called = site.run("node", *labels, node_status_info=JOINED)
    assert called.count("cluster_objects") == 2
    assert "cluster_objects" not in site.run("node", *labels, "--limit=w-1", node_status_info=JOINED)


@pytest.mark.parametrize(
    "name",
    ["attested-kubernetes.dev/not-attested", "kubernetes.io/hostname", "node-role.kubernetes.io/control-plane"],
)
def test_node_refuses_labels_that_are_not_the_sites(site: Site, name: str) -> None:
    words = ("-e", json.dumps({"attested_node_labels": {name: ""}}))
    with pytest.raises(AssertionError, match=f"CONFIG_INVALID: expected .* got[ \\n]*{name}"):
        site.run("node", *words, node_status_info=JOINED)


def test_node_applies_the_taints_of_each_node_on_a_control_plane(site: Site) -> None:
    taints = ("-e", json.dumps({"attested_node_taints": [{"key": "gpu", "effect": "NoSchedule"}]}))
    assert site.run("node", *taints, node_status_info=JOINED).count("node_taints") == 2
    assert "node_taints" not in site.run("node", *taints, "--limit=w-1", node_status_info=JOINED)
    assert "node_taints" not in site.run("node", node_status_info=JOINED)


@pytest.mark.parametrize("renewed", ["true", "false"])
def test_a_site_that_says_so_has_its_control_planes_renew_their_certificates_or_not(site: Site, renewed: str) -> None:
    """What a site says nothing of stays as it is; see the other tests of this road."""
    called = site.run("init", *BY_SSH, "-e", f"attested_control_plane_certificates_renewed={renewed}")
    assert called == [*OVER_SSH[:6], "control_plane: certificates_timer", *OVER_SSH[6:]]


def test_a_site_with_a_schedule_has_its_control_planes_back_up_etcd(site: Site) -> None:
    called = site.run("init", *BY_SSH, "-e", "attested_backup_schedule=daily")
    assert called == [*OVER_SSH[:6], "control_plane: backup_timer", *OVER_SSH[6:]]


def test_certificates_are_rotated_on_control_planes_alone(site: Site) -> None:
    assert site.run("rotate_certificates") == ["control_plane_certificates"]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"attested_ek_replaced": ["sha256:00"]}, id="its machine was replaced"),
        pytest.param({"attested_founder": "nobody"}, id="the site says that nobody is the first"),
    ],
)
def test_the_first_one_joins_like_the_others_where_it_did_not_make_the_cluster(
    site: Site, said: dict[str, object]
) -> None:
    over_ssh = site.run("node", *BY_SSH, "-e", json.dumps(said), node_status_info=JOINED)
    assert sorted(over_ssh[2:4]) == ["control_plane: member", "kubeadm_node"]
    by_bootstrapper = site.run("node", "-e", json.dumps(said), node_status_info=JOINED)
    assert by_bootstrapper[2:6] == BY_BOOTSTRAPPER
    assert "control_plane: up" not in by_bootstrapper
