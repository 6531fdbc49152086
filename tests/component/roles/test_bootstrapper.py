# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role writes for the bootstrapper, read by those who read it; and what it says of a node that is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_program import BootstrapperConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_service import InitServiceConfig

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
ROLE = ROOT / "roles" / "bootstrapper"
PREPARE = yaml.safe_load((ROOT / "playbooks" / "prepare.yml").read_text(encoding="utf-8"))[0]
LET = next(task for task in PREPARE["tasks"] if "bootstrapper" in str(task.get("ansible.builtin.include_role")))
SITE = {
    "attested_node_ip": "10.0.0.11",
    "attested_api_endpoint": "api.prod.example:6443",
    "attested_allow_cgroup_v1": False,
    "attested_ignore_preflight_errors": ["NumCPU", "Mem"],
    "attested_unknown_machines": "queue",
    "attested_firmware_log": "{{ attested_boot }}/eventlog.bin",
    "attested_boot": "/srv/boot",
    "attested_bundle": "/of/the/admin/alone",
}


def run(directory: Path, tasks: list[dict[str, Any]], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run ``tasks`` as `prepare` would for one control plane and one worker of a site, with the role's variables."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    site = {
        "nodes": {
            "vars": {**local, **SITE},
            "children": {
                "control_planes": {"hosts": {"cp-1.prod": {}}},
                "workers": {"hosts": {"w-1": {"attested_node_ip": "10.0.0.21"}}},
            },
        }
    }
    (directory / "site.yml").write_text(yaml.safe_dump(site), encoding="utf-8")
    defaults = [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")]
    play = {"hosts": "nodes", "gather_facts": False, "vars": PREPARE["vars"], "tasks": tasks} | more
    (directory / "book.yml").write_text(yaml.safe_dump([{**play, "vars_files": defaults}]), encoding="utf-8")
    argv = [BIN / "ansible-playbook", "-i", "site.yml", "book.yml"]
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of both machines, by host, as playbook and role together make them."""
    root = tmp_path_factory.mktemp("prepare")
    copy = {
        "name": "Write",
        "ansible.builtin.copy": {
            "content": f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/' ~ item ~ '.j2') }}}}",
            "dest": f"{root}/{{{{ inventory_hostname }}}}-{{{{ item }}}}",
            "mode": "0600",
        },
        "loop": ["bootstrapper.yml", "init-service.yml", "inventory.yml"],
        "vars": LET["vars"],
    }
    done = run(root, [copy])
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def test_the_bootstrapper_reads_its_configuration_and_only_a_control_plane_serves_init(written: Path) -> None:
    checks = ("NumCPU", "Mem")
    worker = load_config(BootstrapperConfig, written / "w-1-bootstrapper.yml")
    assert worker == BootstrapperConfig(node_ip="10.0.0.21", ignore_preflight_errors=checks)
    control_plane = load_config(BootstrapperConfig, written / "cp-1.prod-bootstrapper.yml")
    expected = {"role": Role.CONTROL_PLANE, "serve_init": True}
    assert control_plane == BootstrapperConfig(node_ip="10.0.0.11", ignore_preflight_errors=checks, **expected)


def test_the_init_service_reads_its_configuration(written: Path) -> None:
    assert load_config(InitServiceConfig, written / "cp-1.prod-init-service.yml") == InitServiceConfig()


def test_the_machine_knows_what_the_site_says_of_the_control_plane_and_nothing_else(written: Path) -> None:
    argv = [BIN / "ansible-inventory", "-i", str(written / "cp-1.prod-inventory.yml"), "--list"]
    done = subprocess.run(argv, cwd=written, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["control_planes"]["hosts"] == ["cp-1.prod"]
    assert found["_meta"]["hostvars"]["cp-1.prod"] == {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/opt/attested/venv/bin/python",
        "attested_allow_cgroup_v1": False,
        "attested_api_endpoint": "api.prod.example:6443",
        "attested_firmware_log": "/srv/boot/eventlog.bin",
        "attested_ignore_preflight_errors": ["NumCPU", "Mem"],
        "attested_node_ip": "10.0.0.11",
        "attested_unknown_machines": "queue",
    }


@pytest.mark.parametrize(
    ("node", "told"),
    [
        pytest.param(
            {"reason": "PCR_MISMATCH", "message": "expected PCR 9 to be allowed", "to_do": "Compare the boots."},
            "PCR_MISMATCH: expected PCR 9 to be allowed. Compare the boots.",
            id="its own reason",
        ),
        pytest.param(
            {"reason": None, "message": None, "to_do": "Wait."},
            f"{Reason.NODE_NOT_JOINED.name}: expected a node within 300 s, the machine is Asking. Wait.",
            id="time that was over before anything went wrong",
        ),
    ],
)
def test_a_machine_that_became_no_node_says_why(tmp_path: Path, node: dict[str, Any], told: str) -> None:
    known = {"phase": "Asking", "locked": False, "kubelet_active": False, "bootstrapper_active": False, **node}
    tell = {"ansible.builtin.fail": {"msg": "{{ __bootstrapper_refusal }}"}, "when": "not __bootstrapper_joined"}
    done = run(tmp_path, [tell], vars={"bootstrapper_node": known})
    assert done.returncode != 0
    assert told in done.stdout


def test_a_machine_that_is_a_node_says_nothing(tmp_path: Path) -> None:
    known = {"phase": "Joined", "locked": True, "kubelet_active": True, "bootstrapper_active": False}
    tell = {"ansible.builtin.fail": {"msg": "{{ __bootstrapper_refusal }}"}, "when": "not __bootstrapper_joined"}
    done = run(tmp_path, [tell], vars={"bootstrapper_node": known})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("wanted", [False, True])
def test_the_lab_sets_it_only_where_it_is_told_to(wanted: bool) -> None:
    template = ROOT / "roles" / "lab" / "templates" / "lab.yml.j2"
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True)
    environment.filters |= {"bool": bool, "to_json": json.dumps}
    environment.tests["file"] = lambda path: Path(path).is_file()
    text = environment.from_string(template.read_text(encoding="utf-8")).render(
        lab_machines_bootstrapper=wanted,
        lab_machines_directory="/lab",
        lab_machines_loopback="127.44.0",
        __lab_machines_control_planes={"cp-1": 11},
        __lab_machines_vm_control_planes={},
        __lab_machines_vms={},
    )
    assert yaml.safe_load(text).get("attested_bootstrapper", False) is wanted
