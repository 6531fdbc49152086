# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that a machine runs on itself, as far as it goes without a machine: its words, variables and result."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import accept_access
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import PlaybookOrder, RunnerPlaybooks
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa, request_of

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOKS = ROOT / "playbooks"
BIN = Path(sys.executable).parent
SHARED = ("control_plane", "key_service", "verification_service")
ORDERED = {
    "attested_node_name",
    "attested_cluster_name",
    "attested_kubernetes_version",
    "attested_service_subnet",
    "attested_api_extra_sans",
    "attested_admin_request",
}
"""What the founder gives the playbook (`node/init_machine.py`), and below what it adds where a policy came along."""
BROUGHT = "attested_brought_policy"


def words(path: Path) -> set[str]:
    """Return the variables of the site that a file takes."""
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return set(re.findall(r"\battested_\w+", text))


def test_ansible_understands_every_playbook(tmp_path: Path) -> None:
    """In one call, which ends at the first one that Ansible does not understand and names it."""
    paths = sorted(PLAYBOOKS.glob("*.yml"))
    argv = [BIN / "ansible-playbook", "--syntax-check", "-i", "localhost,", *paths]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line] == [f"playbook: {path}" for path in paths]


def test_the_machine_is_told_every_variable_that_its_playbook_takes() -> None:
    taken = set().union(*(words(PLAYBOOKS / "tasks" / f"{name}.yml") for name in SHARED))
    taken |= words(PLAYBOOKS / "machine_init.yml")
    settings = yaml.safe_load((PLAYBOOKS / "tasks" / "settings.yml").read_text(encoding="utf-8"))[0]
    told = {*settings["vars"]["__prepare_all_names"], "attested_node_ip", "attested_second_node_ip"}
    assert taken - ORDERED - {BROUGHT, "attested_cluster_id"} == told
    founder = (ROOT / "plugins" / "module_utils" / "node" / "init_machine.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(attested_\w+)":', founder)) == {*ORDERED, BROUGHT}


class Silent:
    """Hears a run without a word."""

    def step(self, _stage: str, _task: str) -> None:
        """Hear of a task."""

    def line(self, _text: str) -> None:
        """Hear a line."""


MADE = {"cluster_ca": "the CA", "kubernetes_version": "1.35.4", "admin_certificate": "the certificate"}
ORDER = {
    "attested_node_name": "cp-1",
    "attested_cluster_name": "prod",
    "attested_kubernetes_version": "1.35",
    "attested_service_subnet": "",
    "attested_api_extra_sans": ["api.other.example"],
    "attested_admin_request": "a request",
}
SITE = {
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
    "attested_node_ip": "10.0.0.11",
    "attested_api_endpoint": "api.prod.example:6443",
    "attested_reattest_seconds": 600,
    "attested_tcti": "swtpm:path=/srv/tpm",
    "attested_unknown_machines": "queue",
    "attested_pod_security": "restricted",
    "attested_exempt_namespaces": ["kube-flannel"],
}


class Machine:
    """A copy of the collection's playbooks in which each role only writes down what it was given."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(PLAYBOOKS, self.collection / "playbooks")
        for name in (*SHARED, "join_service"):
            self._role(name)
        self.made(**MADE)
        (root / "node.yml").write_text(f"cluster_id: {'ab' * 32}\n", encoding="utf-8")
        for name in ("machine_init.yml", "machine_member.yml"):
            book = self.collection / "playbooks" / name
            book.write_text(book.read_text(encoding="utf-8").replace("/etc/attested/node.yml", str(root / "node.yml")))
        (root / "hosts.yml").write_text(yaml.safe_dump({"control_planes": {"hosts": {"cp-1": SITE}}}))
        monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(root))

    def _role(self, name: str, *more: dict[str, Any]) -> None:
        wanted = "{{ dict(names | zip(names | map('extract', vars))) | to_json }}"
        own = f"{{{{ query('ansible.builtin.varnames', '^{name}_') }}}}"
        tell = {"content": wanted, "dest": str(self.root / f"{name}.json"), "mode": "0600"}
        tasks = [{"ansible.builtin.copy": tell, "vars": {"names": own}}, *more]
        folder = self.collection / "roles" / name / "tasks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")

    def made(self, **result: str) -> None:
        """Let the control plane be made with this result."""
        self._role("control_plane", {"ansible.builtin.set_fact": {"control_plane_result": result}})

    def run(self, playbook: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Run a playbook by the real runner; return what it tells."""
        order = PlaybookOrder(
            playbook=self.collection / "playbooks" / playbook,
            inventory=self.root / "hosts.yml",
            variables=variables,
        )
        return dict(RunnerPlaybooks(self.root / "run", require_memory=lambda _path: None).run(order, Silent()))

    def init(self, **changes: Any) -> str:
        """Run the playbook of an init, for an order; return the kubeconfig."""
        answer = self.run("machine_init.yml", {**ORDER, **changes})
        assert list(answer) == ["kubeconfig"]
        return str(answer["kubeconfig"])

    def given(self, role: str) -> dict[str, Any]:
        """Return the variables that a role was given."""
        return dict(json.loads((self.root / f"{role}.json").read_text(encoding="utf-8")))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_admin_takes_the_kubeconfig_that_the_machine_gives(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    ca, request = ClusterCa(tmp_path / "ca"), request_of()
    signed = ca.body(request)["users"][0]["user"]["client-certificate-data"]
    certificate = base64.b64decode(signed)
    machine.made(**MADE | {"cluster_ca": ca.certificate.decode(), "admin_certificate": certificate.decode()})
    text = machine.init(attested_admin_request=request.decode())
    given = accept_access(text.encode(), request=request, now=SystemClock().now())
    assert (given.cluster_ca, given.certificate) == (ca.certificate, certificate)
    body = yaml.safe_load(text)
    context = {"cluster": "prod", "user": "attested:admin"}
    assert (body["current-context"], body["contexts"]) == ("prod", [{"name": "prod", "context": context}])
    assert body["clusters"][0]["cluster"]["server"] == "https://api.prod.example:6443"
    assert machine.given("control_plane")["control_plane_admin_request"] == request.decode()


def test_order_and_site_reach_the_roles(machine: Machine) -> None:
    machine.init()
    assert machine.given("control_plane") == {
        "control_plane_node_name": "cp-1",
        "control_plane_node_ip": "10.0.0.11",
        "control_plane_second_node_ip": "",
        "control_plane_kubernetes_version": "1.35",
        "control_plane_cluster_name": "prod",
        "control_plane_api_endpoint": "api.prod.example:6443",
        "control_plane_pod_subnet": "10.244.0.0/16",
        "control_plane_service_subnet": "10.96.0.0/16",
        "control_plane_extra_sans": ["api.other.example"],
        "control_plane_ignore_preflight_errors": [],
        "control_plane_allow_cgroup_v1": False,
        "control_plane_unmanaged_conntrack": False,
        "control_plane_kube_proxy": True,
        "control_plane_kubelet_serving_certificates": True,
        "control_plane_pod_security": "restricted",
        "control_plane_exempt_namespaces": ["kube-flannel"],
        "control_plane_arguments": None,
        "control_plane_authenticators": None,
        "control_plane_audit_webhook": None,
        "control_plane_admin_request": "a request",
    }
    keys = machine.given("key_service")
    assert keys["key_service_cluster_id"] == "ab" * 32
    assert keys["key_service_api_server"] == "https://10.0.0.11:6443"
    assert (keys["key_service_reattest_overdue_seconds"], keys["key_service_unknown_machines"]) == (1800, "queue")
    assert keys["key_service_kubelet_serving_certificates"] is True
    assert machine.given("verification_service")["verification_service_tcti"] == "swtpm:path=/srv/tpm"
    assert machine.given("join_service") == {}


def test_who_asked_for_no_certificate_gets_none(machine: Machine) -> None:
    machine.made(**{key: value for key, value in MADE.items() if key != "admin_certificate"})
    (user,) = yaml.safe_load(machine.init(attested_admin_request=""))["users"]
    assert user == {"name": "attested:admin", "user": {}}


def test_a_further_control_plane_installs_what_admits_machines(machine: Machine) -> None:
    machine.run("machine_member.yml", {"attested_node_name": "cp-1"})
    keys = machine.given("key_service")
    assert keys["key_service_cluster_id"] == "ab" * 32
    assert keys["key_service_api_server"] == "https://10.0.0.11:6443"
    assert machine.given("verification_service")["verification_service_tcti"] == "swtpm:path=/srv/tpm"
    assert machine.given("join_service") == {}
    assert not (machine.root / "control_plane.json").exists()
