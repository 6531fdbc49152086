# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`bundle` as Ansible runs it: which bundles a site has, and what each is made by."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import Case, run_cases

BIN = Path(sys.executable).parent
(PLAY,) = yaml.safe_load((ROOT / "playbooks" / "bundle.yml").read_text(encoding="utf-8"))
(BUILD,) = (task for task in PLAY["tasks"] if "ansible.builtin.include_role" in task)
USUAL = {"attested_bundle": "{{ inventory_dir }}/bundle", "attested_kubernetes_version": "1.35"}
ARM64 = {"attested_bundle": "{{ inventory_dir }}/bundle-arm64", "attested_bundle_architecture": "arm64"}


def site(**machines: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": {"hosts": {name.replace("_", "-"): given for name, given in machines.items()}, "vars": USUAL}}


def made_by(directory: Path, hosts: dict[str, Any], *names: str) -> dict[str, dict[str, Any]]:
    """What the role gets for each bundle, by the name of its directory; the last key is what bundles there are."""
    cases = {
        name: Case(tasks=[{"record": BUILD["vars"]}], variables={"__bundle_path": str(directory / name)})
        for name in names
    }
    paths = Case(tasks=[{"record": {"paths": BUILD["loop"]}}])
    found = run_cases(
        directory, {**cases, "": paths}, hosts={**hosts, "local": {"hosts": {"localhost": {}}}}, vars=PLAY["vars"]
    )
    return {name: one["localhost"] for name, one in found.items()}


def test_a_site_of_one_architecture_has_one_bundle_with_the_wheels_of_all(tmp_path: Path) -> None:
    hosts = site(cp_1={}, w_1={"attested_python_version": "3.13"}, w_2={})
    found = made_by(tmp_path, hosts, "bundle")
    assert found[""]["paths"] == [str(tmp_path / "bundle")]
    assert found["bundle"]["bundle_builder_path"] == str(tmp_path / "bundle")
    assert found["bundle"]["bundle_builder_architecture"] == "amd64"
    assert found["bundle"]["bundle_builder_python_versions"] == ["3.11", "3.13"]


def test_machines_of_another_architecture_have_a_bundle_made_by_what_they_say(tmp_path: Path) -> None:
    newer = {**ARM64, "attested_python_version": "3.13", "attested_component_download": True}
    found = made_by(tmp_path, site(cp_1={}, w_1={}, w_2=newer), "bundle", "bundle-arm64")
    assert found[""]["paths"] == [str(tmp_path / name) for name in ("bundle", "bundle-arm64")]
    told = {
        name: [one[f"bundle_builder_{key}"] for key in ("architecture", "python_versions", "download")]
        for name, one in found.items()
        if name
    }
    assert told == {"bundle": ["amd64", ["3.11"], False], "bundle-arm64": ["arm64", ["3.13"], True]}


def test_one_bundle_for_two_architectures_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    hosts = site(cp_1={}, w_1={"attested_bundle_architecture": "arm64"})
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")
    argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.bundle"]
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(SOURCES)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    said = "of cp-1, w-1, got amd64 and arm64; set another attested_bundle for the machines of one architecture"
    assert done.returncode == 2
    assert "BUNDLE_ARCH_MISMATCH: expected one attested_bundle_architecture for the bundle" in done.stdout
    assert said in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["hosts.yml"]
