# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container stores of a lab, held against the real podman; its site and its variables, read by the real Ansible."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE, ROOT

ENROLMENTS = [
    play["vars"]
    for play in yaml.safe_load((ROOT / "playbooks" / "lab.yml").read_text(encoding="utf-8"))
    if play.get("ansible.builtin.import_playbook") == "enroll.yml"
]


def test_podman_works_before_any_node_image_was_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first lab of a bare machine makes its network before its image."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    monkeypatch.syspath_prepend(str(ROLE / "files" / "host"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "common", raising=False)
    stores = importlib.import_module("common")
    images = tmp_path / "cache" / "node-images" / "store"
    podman = stores.store(tmp_path / "lab" / "containers", run_directory=tmp_path / "run", more=images)
    try:
        assert podman("ps", "--all", "--quiet") == ""
    finally:
        stores.unmount_below(tmp_path)


def answers(
    directory: Path,
    asked: dict[str, Any],
    given: dict[str, Any],
    *,
    hosts: str = "localhost",
    inventory: str = "localhost,",
) -> dict[str, Any]:
    """Return what ``asked`` is for each host, with the role's variables and those of the command line ``given``."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    answer = {"content": "{{ asked | to_json }}", "dest": f"{directory}/answer.{{{{ inventory_hostname }}}}"}
    files = [str(ROLE / name / "main.yml") for name in ("defaults", "vars")]
    play = {"hosts": hosts, "gather_facts": False, "vars_files": files, "vars": {"asked": asked}}
    (directory / "book.yml").write_text(yaml.safe_dump([{**play, "tasks": [{"ansible.builtin.copy": answer}]}]))
    program = Path(sys.executable).parent / "ansible-playbook"
    words = json.dumps({**local, "role_path": str(ROLE), "lab_directory": str(directory), **given})
    argv = [program, "-i", inventory, "-e", words, "book.yml"]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = list(directory.glob("answer.*"))
    read = {file.suffix[1:]: json.loads(file.read_text()) for file in found}
    for file in found:
        file.unlink()
    return read


def site_of(directory: Path, given: dict[str, Any]) -> str:
    """Write the site of a lab as the role does; return its inventory."""
    (task,) = yaml.safe_load((ROLE / "tasks" / "site.yml").read_text(encoding="utf-8"))
    asked = {
        one["to"]: f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/{one['from']}') }}}}"
        for one in task["loop"]
    }
    for name, text in answers(directory, asked, given)["localhost"].items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    return "hosts.yml"


@pytest.mark.parametrize(
    ("given", "tcti", "recorded", "booted"),
    [
        pytest.param(
            {"lab_vm_control_planes": 1, "lab_vm_workers": 2, "lab_workers": 1},
            {"cp-1": "swtpm", "vc-1": "device", "vw-1": "device", "vw-2": "device", "w-1": "swtpm"},
            ["lab", ["cp-1"]], ["vc-1", "vw-1"],
            id="both kinds as both",
        ),
        pytest.param(
            {"lab_control_planes": 0, "lab_vm_control_planes": 1, "lab_workers": 1},
            {"vc-1": "device", "w-1": "swtpm"},
            ["lab", ["w-1"]], ["vc-1"],
            id="the first of all nodes is no container",
        ),
        pytest.param(
            {"lab_control_planes": 0, "lab_vm_control_planes": 1, "lab_workers": 0, "lab_vm_workers": 1},
            {"vc-1": "device", "vw-1": "device"},
            ["", []], ["vc-1", "vw-1"],
            id="virtual machines alone have no recorded boot",
        ),
    ],
)  # fmt: skip
def test_each_kind_of_machine_has_its_own_tpm_and_its_own_reference_for_a_profile(
    tmp_path: Path, given: dict[str, Any], tcti: dict[str, str], recorded: list[Any], booted: list[str]
) -> None:
    inventory = site_of(tmp_path, given)
    of_containers, of_virtual_machines = ENROLMENTS
    asked = {
        "tcti": "{{ attested_tcti }}",
        "profile": [of_containers["profile"], of_containers["reference_machines"]],
    }
    more = given | {"reference_machines": of_containers["reference_machines"]}
    found = answers(tmp_path, asked, more, hosts="nodes", inventory=inventory)
    assert {name: one["tcti"].partition(":")[0] for name, one in found.items()} == tcti
    assert [one["profile"] for one in found.values()] == [recorded] * len(found)
    asked = {"references": of_virtual_machines["reference_machines"]}
    found = answers(tmp_path, asked, given, hosts=of_virtual_machines["attested_hosts"], inventory=inventory)
    assert found == {name: {"references": booted} for name, kind in tcti.items() if kind == "device"}


@pytest.mark.parametrize(
    ("machine", "noted", "memory"),
    [
        pytest.param("vc-1", None, 3072, id="a control plane that was not there before"),
        pytest.param("vw-1", None, 2048, id="a worker that was not there before"),
        pytest.param("vw-1", 1536, 1536, id="what it was made with, not what it would be made with now"),
    ],
)
def test_a_machine_is_started_again_with_the_hardware_that_it_has(
    tmp_path: Path, machine: str, noted: int | None, memory: int
) -> None:
    if noted:
        note = tmp_path / "machines" / machine / "machine.json"
        note.parent.mkdir(parents=True)
        note.write_text(json.dumps({"name": machine, "hardware": {"memory_mebibytes": noted, "command_line": "old"}}))
    given = {"lab_machines_machine_name": machine, "lab_machines_machine_number": 60, "lab_machines_machine_kind": "vm"}
    found = answers(tmp_path, {"one": "{{ __lab_machines_one }}"}, given)["localhost"]["one"]
    assert found["hardware"] == {
        "memory_mebibytes": memory,
        "processors": 2 if machine == "vc-1" else 1,
        "state_disk_mebibytes": 1024 if machine == "vc-1" else 512,
        "acceleration": "tcg",
        "command_line": "",
    }
