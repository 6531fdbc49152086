# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container stores of a lab, held against the real podman; its site and its variables, read by the real Ansible."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE, ROOT
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import Case, run_cases

if TYPE_CHECKING:
    from pathlib import Path

LOCALHOST = {"all": {"hosts": {"localhost": {}}}}
FILES = [str(ROLE / name / "main.yml") for name in ("defaults", "vars")]
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


def variables(directory: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return what the role and the command line know of a lab."""
    return {"role_path": str(ROLE), "lab_directory": str(directory), **given}


FLEETS: dict[str, tuple[dict[str, Any], dict[str, str], list[Any], list[str]]] = {
    "both kinds as both": (
        {"lab_vm_control_planes": 1, "lab_vm_workers": 2, "lab_workers": 1},
        {"cp-1": "swtpm", "vc-1": "device", "vw-1": "device", "vw-2": "device", "w-1": "swtpm"},
        ["lab", ["cp-1"]], ["vc-1", "vw-1"],
    ),
    "each machine with another Debian is one more reference": (
        {"lab_vm_control_planes": 1, "lab_vm_workers": 3, "lab_suites": {"vw-1": "trixie", "vw-3": "trixie"}},
        dict.fromkeys(("cp-1", "w-1", "w-2"), "swtpm") | dict.fromkeys(("vc-1", "vw-1", "vw-2", "vw-3"), "device"),
        ["lab", ["cp-1"]], ["vc-1", "vw-1", "vw-3"],
    ),
    "the first of all nodes is no container": (
        {"lab_control_planes": 0, "lab_vm_control_planes": 1, "lab_workers": 1},
        {"vc-1": "device", "w-1": "swtpm"},
        ["lab", ["w-1"]], ["vc-1"],
    ),
    "virtual machines alone have no recorded boot": (
        {"lab_control_planes": 0, "lab_vm_control_planes": 1, "lab_workers": 0, "lab_vm_workers": 1},
        {"vc-1": "device", "vw-1": "device"},
        ["", []], ["vc-1", "vw-1"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of labs whose sites were written as the role does."""
    (task,) = yaml.safe_load((ROLE / "tasks" / "site.yml").read_text(encoding="utf-8"))
    asked = {
        one["to"]: f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/{one['from']}') }}}}"
        for one in task["loop"]
    }
    places = {name: tmp_path_factory.mktemp("lab") for name in FLEETS}
    cases = {
        name: Case(tasks=[{"record": asked}], variables=variables(places[name], given))
        for name, (given, *_expected) in FLEETS.items()
    }
    written = run_cases(tmp_path_factory.mktemp("sites"), cases, hosts=LOCALHOST, vars_files=FILES)
    for fleet, place in places.items():
        for name, text in written[fleet]["localhost"].items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
    return places


@pytest.mark.parametrize("fleet", FLEETS)
def test_each_kind_of_machine_has_its_own_tpm_and_its_own_reference_for_a_profile(
    sites: dict[str, Path], fleet: str
) -> None:
    given, tcti, recorded, booted = FLEETS[fleet]
    of_containers, of_virtual_machines = ENROLMENTS
    known = variables(sites[fleet], given)
    nodes = {"tcti": "{{ attested_tcti }}", "profile": of_containers["profile"]}
    references = {"references": of_containers["reference_machines"]}
    more = known | {"reference_machines": of_containers["reference_machines"]}
    cases = {
        "nodes": Case(tasks=[{"record": nodes | references}], variables=more, hosts="nodes"),
        "virtual machines": Case(
            tasks=[{"record": {"references": of_virtual_machines["reference_machines"]}}],
            variables=known,
            hosts=of_virtual_machines["attested_hosts"],
        ),
    }
    found = run_cases(sites[fleet], cases, vars_files=FILES)
    assert {name: one["tcti"].partition(":")[0] for name, one in found["nodes"].items()} == tcti
    profiles = [[one["profile"], one["references"]] for one in found["nodes"].values()]
    assert profiles == [recorded] * len(tcti)
    expected = {name: {"references": booted} for name, kind in tcti.items() if kind == "device"}
    assert found["virtual machines"] == expected


def test_a_machine_is_started_again_with_the_hardware_that_it_has(tmp_path: Path) -> None:
    fresh, made = tmp_path / "fresh", tmp_path / "made"
    note = made / "machines" / "vw-1" / "machine.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"name": "vw-1", "hardware": {"memory_mebibytes": 1536, "command_line": "old"}}))
    labs = {
        "a control plane that was not there before": (fresh, "vc-1", 3072),
        "a worker that was not there before": (fresh, "vw-1", 2048),
        "what it was made with, not what it would be made with now": (made, "vw-1", 1536),
    }
    kind = {"lab_machines_machine_number": 60, "lab_machines_machine_kind": "vm"}
    ask = {"record": {"one": "{{ __lab_machines_one }}"}}
    cases = {
        name: Case(tasks=[ask], variables=variables(place, {"lab_machines_machine_name": machine, **kind}))
        for name, (place, machine, _memory) in labs.items()
    }
    found = run_cases(tmp_path, cases, hosts=LOCALHOST, vars_files=FILES)
    assert {name: one["localhost"]["one"]["hardware"] for name, one in found.items()} == {
        name: {
            "memory_mebibytes": memory,
            "processors": 2 if machine == "vc-1" else 1,
            "state_disk_mebibytes": 1024 if machine == "vc-1" else 512,
            "acceleration": "tcg",
            "command_line": "",
            "secure_boot": False,
        }
        for name, (_place, machine, memory) in labs.items()
    }
