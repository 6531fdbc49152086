# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that was reset boots with the units that it had; one whose configuration is gone must not try for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.node.wipe import LEFT

ROLES = Path(__file__).parents[3] / "roles"
CONFIGURATIONS = sorted(f"/{path}" for path in LEFT if path.is_relative_to("etc/attested"))


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_service_whose_configuration_a_reset_takes_starts_only_where_it_is(configuration: str) -> None:
    name = Path(configuration).stem
    (unit,) = ROLES.glob(f"*/templates/attested-{name}.service.j2")
    lines = unit.read_text().splitlines()
    assert f"ConditionPathExists={configuration}" in lines[: lines.index("[Service]")]
