# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bootstrapper comes only where a site asks for it, and its configuration holds no secret."""

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
OFF_BY_DEFAULT = "attested_bootstrapper | default(false) | bool"


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


@pytest.mark.parametrize("task", uses())
def test_each_use_of_the_bootstrapper_is_off_by_default(task: dict[str, Any]) -> None:
    """Both where it is installed and where it is waited for."""
    when = task["when"] if isinstance(task["when"], list) else [task["when"]]
    assert OFF_BY_DEFAULT in when


def test_it_is_used_where_it_is_installed_and_where_it_is_waited_for() -> None:
    """Or the test above holds nothing."""
    assert {use.id.split(":")[0] for use in uses()} == {"node", "settings"}


def test_no_site_that_we_write_asks_for_it() -> None:
    """Neither the example nor what scaffold writes; the lab does so only where it was told to."""
    sites = [*ROOT.glob("inventory/example/**/*.yml"), *ROOT.glob("roles/site_directory/**/*.j2")]
    assert len(sites) > 3
    setting = re.compile(r"^\s*attested_bootstrapper:", re.MULTILINE)
    assert [path for path in sites if setting.search(path.read_text(encoding="utf-8"))] == []
    lab = (ROOT / "roles/lab/templates/lab.yml.j2").read_text(encoding="utf-8")
    assert re.search(r"{% if lab_machines_bootstrapper \| bool %}[^%]*^attested_bootstrapper: true", lab, re.MULTILINE)


def test_no_configuration_holds_a_secret() -> None:
    """A role that wrote one would be refused: unknown fields are."""
    fields = {field.name for config in (BootstrapperConfig, InitServiceConfig) for field in dataclasses.fields(config)}
    assert [name for name in fields if "secret" in name] == []
