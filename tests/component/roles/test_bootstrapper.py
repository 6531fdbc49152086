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
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import FAILED, Case, run_cases

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
ROLE = ROOT / "roles" / "bootstrapper"
SETTINGS = yaml.safe_load((ROOT / "playbooks" / "tasks" / "settings.yml").read_text(encoding="utf-8"))[0]
LET = next(task for task in SETTINGS["block"] if "bootstrapper" in str(task.get("ansible.builtin.include_role")))
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


JOINED = {"phase": "Joined", "locked": True, "kubelet_active": True, "bootstrapper_active": False}
ASKING = {"phase": "Asking", "locked": False, "kubelet_active": False, "bootstrapper_active": False}
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "its own reason": (
        {**ASKING, "reason": "PCR_MISMATCH", "message": "expected PCR 9 to be allowed", "to_do": "Compare the boots."},
        "PCR_MISMATCH: expected PCR 9 to be allowed. Compare the boots.",
    ),
    "time that was over before anything went wrong": (
        {**ASKING, "reason": None, "message": None, "to_do": "Wait."},
        f"{Reason.NODE_NOT_JOINED.name}: expected a node within 300 s, the machine is Asking. Wait.",
    ),
    "a machine that is a node": (JOINED, ""),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """What all cases come to, as `prepare` would run them for a control plane and a worker."""
    files = ("bootstrapper.yml", "init-service.yml", "inventory.yml")
    texts = {name: f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/{name}.j2') }}}}" for name in files}
    tell = {"ansible.builtin.fail": {"msg": "{{ __bootstrapper_refusal }}"}, "when": "not __bootstrapper_joined"}
    cases = {
        "files": Case(tasks=[{"record": texts, "vars": LET["vars"]}], variables=SETTINGS["vars"]),
        **{
            name: Case(tasks=[tell, {"record": {}}], variables={"bootstrapper_node": node})
            for name, (node, _told) in REFUSALS.items()
        },
    }
    groups = {
        "control_planes": {"hosts": {"cp-1.prod": {}}},
        "workers": {"hosts": {"w-1": {"attested_node_ip": "10.0.0.21", "attested_second_node_ip": "fd00::21"}}},
    }
    defaults = [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")]
    hosts = {"nodes": {"vars": SITE, "children": groups}}
    return run_cases(tmp_path_factory.mktemp("cases"), cases, hosts=hosts, vars_files=defaults)


@pytest.fixture
def written(found: dict[str, dict[str, dict[str, Any]]], tmp_path: Path) -> Path:
    """The files of both machines, by host, as playbook and role together make them."""
    for host, texts in found["files"].items():
        for name, text in texts.items():
            (tmp_path / f"{host}-{name}").write_text(text, encoding="utf-8")
    return tmp_path


def test_the_bootstrapper_reads_its_configuration_and_only_a_control_plane_serves_init(written: Path) -> None:
    checks = ("NumCPU", "Mem")
    worker = load_config(BootstrapperConfig, written / "w-1-bootstrapper.yml")
    addresses = {"node_ip": "10.0.0.21", "second_node_ip": "fd00::21"}
    assert worker == BootstrapperConfig(**addresses, ignore_preflight_errors=checks)
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


@pytest.mark.parametrize("name", REFUSALS)
def test_a_machine_that_became_no_node_says_why_and_a_node_says_nothing(found: dict[str, Any], name: str) -> None:
    _node, told = REFUSALS[name]
    for said in found[name].values():
        assert said.get(FAILED, "").startswith(told)
        assert (FAILED in said) is bool(told)
    assert len(found[name]) == 2


@pytest.mark.parametrize("wanted", [False, True])
def test_the_lab_leaves_it_out_only_where_it_is_told_to(wanted: bool) -> None:
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
    assert yaml.safe_load(text).get("attested_bootstrapper", True) is wanted
