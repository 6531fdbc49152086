# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who watches the state disk comes to machines that have one, over both roads to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jinja2 import Environment

SETTINGS = Path(__file__).resolve().parents[3] / "playbooks" / "tasks" / "settings.yml"
ROLE = "attested.kubernetes.state_disk"


@pytest.mark.parametrize(
    ("site", "installed"),
    [
        pytest.param({"attested_state_disk": "/dev/disk/by-id/a"}, True, id="a disk, over ssh"),
        pytest.param({"attested_state_disk": "/dev/disk/by-id/a", "attested_bootstrapper": True}, True, id="by itself"),
        pytest.param({"attested_state_disk": ""}, False, id="an empty name"),
        pytest.param({}, False, id="nothing said"),
    ],
)
def test_it_is_installed_where_the_site_names_a_disk(site: dict[str, object], installed: bool) -> None:
    tasks = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))[0]["block"]
    (task,) = [one for one in tasks if one.get("ansible.builtin.include_role", {}).get("name") == ROLE]
    assert Environment(autoescape=True).compile_expression(task["when"])(**site) is installed
