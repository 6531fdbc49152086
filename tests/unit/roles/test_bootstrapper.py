# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bootstrapper comes unless a site says no, and its configuration holds no secret."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_program import BootstrapperConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_service import InitServiceConfig

ROOT = Path(__file__).resolve().parents[3]
ROLE = "attested.kubernetes.bootstrapper"
CHOSEN = {"node": "__node_by_unit", "settings": "__prepare_by_unit"}
"""What says in each file whether the machine has a bootstrapper."""


def tasks_in(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks of plays and blocks."""
    kinds = ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks")
    return [
        one for entry in entries for one in (entry, *tasks_in([t for kind in kinds for t in entry.get(kind) or []]))
    ]


def uses() -> list[Any]:
    """Return each use of the role in a playbook or another role."""
    found = []
    for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        for task in tasks_in(read) if isinstance(read, list) else []:
            included = task.get("ansible.builtin.include_role") or task.get("ansible.builtin.import_role") or {}
            if included.get("name") == ROLE:
                found.append(pytest.param(task, id=f"{path.stem}: {task['name']}"))
    return found


def when_of(task: dict[str, Any]) -> list[str]:
    """Return the conditions of a task."""
    return task["when"] if isinstance(task["when"], list) else [task["when"]]


def test_it_is_installed_and_waited_for_on_the_same_machines() -> None:
    """What it comes to: tests/component/playbooks/test_roads.py, tests/component/roles/test_boot_source.py."""
    found = {use.id.split(":")[0]: use.values[0] for use in uses()}
    assert {name: CHOSEN[name] in when_of(task) for name, task in found.items()} == dict.fromkeys(CHOSEN, True)
    (play, *_others) = yaml.safe_load((ROOT / "playbooks/node.yml").read_text(encoding="utf-8"))
    (block,) = yaml.safe_load((ROOT / "playbooks/tasks/settings.yml").read_text(encoding="utf-8"))
    assert play["vars"][CHOSEN["node"]] == block["vars"][CHOSEN["settings"]]


def test_no_site_that_we_write_leaves_it_out() -> None:
    """Neither the example nor what scaffold writes; the lab does so only where it was told to."""
    sites = [*ROOT.glob("inventory/example/**/*.yml"), *ROOT.glob("roles/site_directory/**/*.j2")]
    assert len(sites) > 3
    setting = re.compile(r"^\s*attested_bootstrapper:", re.MULTILINE)
    assert [path for path in sites if setting.search(path.read_text(encoding="utf-8"))] == []
    lab = (ROOT / "roles/lab/templates/lab.yml.j2").read_text(encoding="utf-8")
    assert re.search(
        r"{% if not lab_machines_bootstrapper \| bool %}[^%]*^attested_bootstrapper: false", lab, re.MULTILINE
    )


def test_no_configuration_holds_a_secret() -> None:
    """A role that wrote one would be refused: unknown fields are."""
    fields = {field.name for config in (BootstrapperConfig, InitServiceConfig) for field in dataclasses.fields(config)}
    assert [name for name in fields if "secret" in name] == []
