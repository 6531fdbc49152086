# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that a machine runs on itself, as far as it goes without a machine: its words, variables and result."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.playbook import (
    PlaybookOrder,
    RunnerPlaybooks,
)

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
"""What the founder gives the playbook (`bootstrap/founder.py`)."""


def words(path: Path) -> set[str]:
    """Return the variables of the site that a file takes."""
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return set(re.findall(r"\battested_\w+", text))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(PLAYBOOKS.glob("*.yml"))])
def test_ansible_understands_every_playbook(path: Path, tmp_path: Path) -> None:
    argv = [BIN / "ansible-playbook", "--syntax-check", "-i", "localhost,", path]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_machine_is_told_every_variable_that_its_playbook_takes() -> None:
    taken = set().union(*(words(PLAYBOOKS / "tasks" / f"{name}.yml") for name in SHARED))
    taken |= words(PLAYBOOKS / "machine_init.yml")
    prepare = yaml.safe_load((PLAYBOOKS / "prepare.yml").read_text(encoding="utf-8"))[0]
    told = {*prepare["vars"]["__prepare_all_names"], "attested_node_ip"}
    assert taken - ORDERED - {"attested_cluster_id"} == told
    founder = (ROOT / "plugins" / "module_utils" / "bootstrap" / "founder.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(attested_\w+)":', founder)) == ORDERED


class Silent:
    """Hears a run without a word."""

    def step(self, _stage: str, _task: str) -> None:
        """Hear of a task."""

    def line(self, _text: str) -> None:
        """Hear a line."""


def told(tmp_path: Path, result: dict[str, str]) -> str:
    """Return what the playbook's last task tells of a control plane with this result, by the real runner."""
    tasks = yaml.safe_load((PLAYBOOKS / "machine_init.yml").read_text(encoding="utf-8"))[-1]["tasks"]
    play = {"hosts": "control_planes", "gather_facts": False, "tasks": tasks[-1:]}
    book = tmp_path / "playbooks" / "book.yml"
    (book.parent / "templates").mkdir(parents=True)
    template = PLAYBOOKS / "templates" / "kubeconfig.yml.j2"
    (book.parent / "templates" / template.name).write_bytes(template.read_bytes())
    book.write_text(yaml.safe_dump([play]), encoding="utf-8")
    local = {"ansible_connection": "local", "attested_api_endpoint": "api.prod.example:6443"}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"control_planes": {"hosts": {"cp-1": local}}}))
    variables: dict[str, Any] = {"attested_cluster_name": "prod", "control_plane_result": result}
    order = PlaybookOrder(playbook=book, inventory=tmp_path / "hosts.yml", variables=variables)
    answer = RunnerPlaybooks(tmp_path / "run", require_memory=lambda _path: None).run(order, Silent())
    assert list(answer) == ["kubeconfig"]
    return str(answer["kubeconfig"])


def test_the_admin_gets_a_kubeconfig_without_a_private_key(tmp_path: Path) -> None:
    text = told(tmp_path, {"cluster_ca": "the CA", "admin_certificate": "the certificate"})
    assert "key" not in text
    body = yaml.safe_load(text)
    context = {"cluster": "prod", "user": "attested:admin"}
    assert (body["current-context"], body["contexts"]) == ("prod", [{"name": "prod", "context": context}])
    (cluster,), (user,) = body["clusters"], body["users"]
    assert cluster["cluster"]["server"] == "https://api.prod.example:6443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"the CA"
    assert (user["name"], list(user["user"])) == ("attested:admin", ["client-certificate-data"])
    assert base64.b64decode(user["user"]["client-certificate-data"]) == b"the certificate"


def test_who_asked_for_no_certificate_gets_none(tmp_path: Path) -> None:
    (user,) = yaml.safe_load(told(tmp_path, {"cluster_ca": "the CA"}))["users"]
    assert user == {"name": "attested:admin", "user": {}}
