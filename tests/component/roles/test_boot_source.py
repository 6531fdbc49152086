# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `prepare` writes for a machine that boots from the site's repository, read by the program that reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import load_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.node_boot import NodeBootConfig
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import FAILED, Case, run_cases

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "boot_source"
SETTINGS = yaml.safe_load((ROOT / "playbooks" / "tasks" / "settings.yml").read_text(encoding="utf-8"))[0]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEL/06zH6IoWupSK5c+xqmvX7u8pqIxUN2ME7ozJzXgA admin@example"
CLUSTER = {"cluster_id": "ab" * 32, "join_ca": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"}
SITE = {"attested_source_url": "https://git.example/site.git", "attested_source_signers": [KEY]}


def task(role: str) -> dict[str, Any]:
    return next(one for one in SETTINGS["block"] if role in str(one.get("ansible.builtin.include_role")))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """What all cases come to, as `prepare` would run them for a control plane and a worker of a site."""
    directory = tmp_path_factory.mktemp("cases")
    (directory / "cluster.yml").write_text(yaml.safe_dump(CLUSTER), encoding="utf-8")
    template = ROOT / "roles/node_runtime/templates/node.yml.j2"
    write = {"record": {"text": f"{{{{ lookup('ansible.builtin.template', '{template}') }}}}"}}
    node = {**write, "vars": task("node_runtime")["vars"]}
    run = {"record": {"runs": True}, "when": task("boot_source")["when"]}
    bootstrapper = {"record": {"runs": True}, "when": task("bootstrapper")["when"]}
    (check,) = yaml.safe_load((ROLE / "tasks/main.yml").read_text(encoding="utf-8"))[:1]
    alone = [{**check, "vars": task("boot_source")["vars"]}, {"record": {"passed": True}}]
    cases = {
        "node.yml with a url": Case(tasks=[node], variables=SITE | {"attested_source_minimum": 7}),
        "node.yml without a url": Case(tasks=[node]),
        "unit with a url": Case(tasks=[run], variables=SITE),
        "unit without a url": Case(tasks=[run]),
        "two units": Case(tasks=alone, variables=SITE | {"attested_bootstrapper": True}),
        "bootstrapper": Case(tasks=[bootstrapper]),
        "bootstrapper with a url": Case(tasks=[bootstrapper], variables=SITE),
        "no bootstrapper": Case(tasks=[bootstrapper], variables={"attested_bootstrapper": False}),
        "one unit": Case(tasks=alone, variables=SITE),
    }
    facts = {"node_bundle_manifest_sha256": "cd" * 32, "node_bundle_directory": "/b", "node_bundle_ready": True}
    hosts = {"control_planes": {"hosts": {"cp-1": {}}}, "workers": {"hosts": {"w-1": {}}}}
    inventory = {"nodes": {"vars": {**facts, "attested_cluster_name": "prod"}, "children": hosts}}
    files = [str(ROOT / "roles/node_runtime" / name / "main.yml") for name in ("defaults", "vars")]
    return run_cases(directory, cases, hosts=inventory, vars=SETTINGS["vars"], vars_files=files)


def node_yml(directory: Path, written: dict[str, Any]) -> Path:
    (directory / "node.yml").write_text(written["text"], encoding="utf-8")
    return directory / "node.yml"


def test_a_worker_reads_its_source_and_a_control_plane_has_none(found: dict[str, Any], tmp_path: Path) -> None:
    source = load_node_config(node_yml(tmp_path, found["node.yml with a url"]["w-1"])).source
    assert source is not None
    assert (source.url, source.minimum, source.branch) == ("https://git.example/site.git", 7, "main")
    assert [signer.name for signer in source.signers] == ["admin@example"]
    assert source.transports == ("https",)
    assert load_node_config(node_yml(tmp_path, found["node.yml with a url"]["cp-1"])).source is None


def test_without_a_url_nothing_is_written(found: dict[str, Any], tmp_path: Path) -> None:
    place = node_yml(tmp_path, found["node.yml without a url"]["w-1"])
    assert load_node_config(place).source is None
    assert "source" not in yaml.safe_load(place.read_text())


def test_the_program_reads_what_the_role_writes(tmp_path: Path) -> None:
    text = (ROLE / "templates/boot-source.yml.j2").read_text(encoding="utf-8")
    (tmp_path / "boot-source.yml").write_text(
        text.replace("{{ boot_source_bundle_sha256 | to_json }}", '"' + "cd" * 32 + '"')
    )
    assert load_config(NodeBootConfig, tmp_path / "boot-source.yml").bundle == "cd" * 32


def test_the_unit_is_for_workers_of_a_site_with_a_url(found: dict[str, Any]) -> None:
    assert found["unit without a url"] == {}
    assert found["unit with a url"] == {"w-1": {"runs": True}}


def test_two_units_that_make_a_node_are_refused(found: dict[str, Any]) -> None:
    message = "CONFIG_INVALID: expected attested_source_url or attested_bootstrapper, got both"
    assert {host: said[FAILED].startswith(message) for host, said in found["two units"].items()} == {
        "cp-1": True,
        "w-1": True,
    }
    assert found["one unit"]["w-1"] == {"passed": True}


def test_each_machine_has_the_bootstrapper_unless_the_sites_repository_or_a_playbook_joins_it(
    found: dict[str, Any],
) -> None:
    assert found["bootstrapper"] == {"cp-1": {"runs": True}, "w-1": {"runs": True}}
    assert found["bootstrapper with a url"] == {"cp-1": {"runs": True}}
    assert found["no bootstrapper"] == {}
