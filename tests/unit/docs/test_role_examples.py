# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-doc -t role` shows how each role is used, with options that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = sorted((Path(__file__).parents[3] / "roles").iterdir())
USE = "ansible.builtin.include_role"


@pytest.mark.parametrize("role", ROLES, ids=lambda one: one.name)
def test_the_example_of_a_role_uses_it_by_its_own_options(role: Path) -> None:
    points = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    tasks: list[dict[str, Any]] = yaml.safe_load(points["main"]["examples"])
    known = set(points["main"].get("options", {}))
    used = [one for one in tasks if one.get(USE, {}).get("name") == f"attested.kubernetes.{role.name}"]
    assert used, f"expected a task of {USE} with this role"
    assert {name for one in used for name in one.get("vars", {})} - known == set()
