# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of long runs (docs/records/README.md), written after each case, also if a run is interrupted.

Runs of one commit on one day, even parallel ones, write the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.tests.support.boundaries import ROOT, commit

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = Path(os.environ.get("ATTESTED_RECORDS", ROOT / "docs" / "records"))


@dataclass(frozen=True, slots=True)
class Kind:
    """The name of a record, and the outcome of a successful case."""

    name: str
    good: str


MATRIX = Kind("matrix", "joined")
POWER_CUTS = Kind("power-cuts", "continued")
UPGRADES = Kind("upgrades", "completed")
SCENES = Kind("virtual-machines", "shown")


@contextmanager
def recorded(point: str, fault: str, *, kind: Kind = MATRIX, directory: Path = RECORDS) -> Iterator[None]:
    """Record the outcome of one case: success at its end, ``failed`` otherwise."""
    outcome, began = "failed", time.monotonic()
    try:
        yield
        outcome = kind.good
    finally:
        case = {"point": point, "fault": fault, "outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
        keep_case(directory, case, kind=kind, commit=commit(), now=datetime.now(UTC))


def keep_case(directory: Path, case: dict[str, Any], *, kind: Kind = MATRIX, commit: str, now: datetime) -> Path:
    """Write one case to the record of its commit, replacing an earlier try; return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{now:%Y-%m-%d}-{kind.name}.json"
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cases = [one for one in _cases_of(path, commit) if not _is_same(one, case)] + [case]
        body = {
            "version": 1,
            "record": kind.name,
            "date": now.isoformat(timespec="seconds"),
            "commit": commit,
            kind.good: sum(one["outcome"] == kind.good for one in cases),
            "of": len(cases),
            "cases": cases,
        }
        path.write_text(json.dumps(body, indent=1) + "\n")
    return path


def _cases_of(path: Path, commit: str) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    cases: list[dict[str, Any]] = found["cases"]
    return cases if found["commit"] == commit else []


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["point"], one["fault"]) == (other["point"], other["fault"])
