# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded walk shows the columns that our objects have, but for those that it says came later."""

from __future__ import annotations

import re

import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

WALK = (ROOT / "docs" / "walk.md").read_text(encoding="utf-8")
KINDS = sorted((ROOT / "roles" / "control_plane" / "files" / "crds").glob("*.yml"))
NODES = ("NAME", "STATUS", "ROLES", "AGE", "VERSION")
"""The columns of Kubernetes' own Node objects."""


def columns() -> set[tuple[str, ...]]:
    """Every head that kubectl prints for our kinds, plain and wide."""
    heads = set()
    for path in KINDS:
        for version in yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]:
            told = [(one["name"].upper(), one.get("priority", 0)) for one in version["additionalPrinterColumns"]]
            heads.add(("NAME", *(name for name, _priority in told)))
            heads.add(("NAME", *(name for name, priority in told if not priority)))
    return heads


def test_columns_that_came_after_the_walk_are_named() -> None:
    later = set(re.findall(r"`([A-Z-]+)`", next(line for line in WALK.splitlines() if "came later" in line)))
    recorded = {tuple(line.split()) for line in WALK.splitlines() if line.startswith("NAME ")} - {NODES}
    known = {tuple(name for name in head if name not in later) for head in columns()}
    assert len(recorded) == 4
    assert recorded - known == set()
    assert later <= {name for head in columns() for name in head}
