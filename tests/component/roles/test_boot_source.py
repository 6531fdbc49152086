# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `prepare` writes for a machine that boots from the site's repository, read by the program that reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import load_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.node_boot import NodeBootConfig

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
ROLE = ROOT / "roles" / "boot_source"
PREPARE = yaml.safe_load((ROOT / "playbooks" / "prepare.yml").read_text(encoding="utf-8"))[0]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEL/06zH6IoWupSK5c+xqmvX7u8pqIxUN2ME7ozJzXgA admin@example"
CLUSTER = {"cluster_id": "ab" * 32, "join_ca": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"}
SITE = {"attested_source_url": "https://git.example/site.git", "attested_source_signers": [KEY]}


def task(role: str) -> dict[str, Any]:
    return next(one for one in PREPARE["tasks"] if role in str(one.get("ansible.builtin.include_role")))


def play(directory: Path, tasks: list[dict[str, Any]], **site: Any) -> subprocess.CompletedProcess[str]:
    """Run ``tasks`` as `prepare` would for a control plane and a worker of a site."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    facts = {"node_bundle_manifest_sha256": "cd" * 32, "node_bundle_directory": "/b", "node_bundle_ready": True}
    hosts = {"control_planes": {"hosts": {"cp-1": {}}}, "workers": {"hosts": {"w-1": {}}}}
    inventory = {"nodes": {"vars": {**local, **facts, "attested_cluster_name": "prod", **site}, "children": hosts}}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    (directory / "cluster.yml").write_text(yaml.safe_dump(CLUSTER), encoding="utf-8")
    files = [str(ROOT / "roles/node_runtime" / name / "main.yml") for name in ("defaults", "vars")]
    book = {"hosts": "nodes", "gather_facts": False, "vars": PREPARE["vars"], "vars_files": files, "tasks": tasks}
    (directory / "book.yml").write_text(yaml.safe_dump([book]), encoding="utf-8")
    argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "book.yml"]
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)


def node_yml(directory: Path, **site: Any) -> Path:
    """Write node.yml of both machines by the role's template and the playbook's variables; return the worker's."""
    template = ROOT / "roles/node_runtime/templates/node.yml.j2"
    copy = {"content": f"{{{{ lookup('ansible.builtin.template', '{template}') }}}}", "mode": "0600"}
    write = {"ansible.builtin.copy": {**copy, "dest": f"{directory}/{{{{ inventory_hostname }}}}.yml"}}
    done = play(directory, [{**write, "vars": task("node_runtime")["vars"]}], **site)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / "w-1.yml"


def test_a_worker_reads_its_source_and_a_control_plane_has_none(tmp_path: Path) -> None:
    source = load_node_config(node_yml(tmp_path, **SITE, attested_source_minimum=7)).source
    assert source is not None
    assert (source.url, source.minimum, source.branch) == ("https://git.example/site.git", 7, "main")
    assert [signer.name for signer in source.signers] == ["admin@example"]
    assert source.transports == ("https",)
    assert load_node_config(tmp_path / "cp-1.yml").source is None


def test_without_a_url_nothing_is_written(tmp_path: Path) -> None:
    place = node_yml(tmp_path)
    assert load_node_config(place).source is None
    assert "source" not in yaml.safe_load(place.read_text())


def test_the_program_reads_what_the_role_writes(tmp_path: Path) -> None:
    text = (ROLE / "templates/boot-source.yml.j2").read_text(encoding="utf-8")
    (tmp_path / "boot-source.yml").write_text(
        text.replace("{{ boot_source_bundle_sha256 | to_json }}", '"' + "cd" * 32 + '"')
    )
    assert load_config(NodeBootConfig, tmp_path / "boot-source.yml").bundle == "cd" * 32


@pytest.mark.parametrize(
    ("site", "runs"),
    [
        pytest.param({}, False, id="no url, no unit"),
        pytest.param(SITE, True, id="a url, on the worker alone"),
    ],
)
def test_the_unit_is_for_workers_of_a_site_with_a_url(tmp_path: Path, site: dict[str, Any], runs: bool) -> None:
    say = {"ansible.builtin.debug": {"msg": "boots from {{ inventory_hostname }}"}, "when": task("boot_source")["when"]}
    done = play(tmp_path, [say], **site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("boots from w-1" in done.stdout) is runs
    assert "boots from cp-1" not in done.stdout


def test_two_units_that_make_a_node_are_refused(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text(encoding="utf-8"))[:1]
    both = play(tmp_path, [{**tasks[0], "vars": task("boot_source")["vars"]}], **SITE, attested_bootstrapper=True)
    assert both.returncode != 0
    assert "CONFIG_INVALID: expected attested_source_url or attested_bootstrapper, got both" in both.stdout
    assert play(tmp_path, [{**tasks[0], "vars": task("boot_source")["vars"]}], **SITE).returncode == 0
