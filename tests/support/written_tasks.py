# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of the collection's roles and playbooks as data, without the roles of the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def files() -> list[Path]:
    """Return all files with tasks or plays of an admin."""
    found = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    return sorted(one for one in found if "/roles/lab/" not in str(one) and "lab" not in one.stem.split("_"))


def tasks_of(path: Path) -> list[dict[str, Any]]:
    """Return all tasks of a file, including those in blocks and plays, with the plays and blocks themselves."""
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    return flat(read) if isinstance(read, list) else []


def flat(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tasks with their nested tasks."""
    kinds = ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks")
    return [one for entry in entries for one in (entry, *flat([t for kind in kinds for t in entry.get(kind) or []]))]
