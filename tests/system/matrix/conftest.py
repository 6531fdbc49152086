# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of the matrix, with faults in its machines, and the record of what became of the cases."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.boot_lab import CONTROL_PLANE, UNIT, WORKER, boot_lab
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road

ROOT = Path(__file__).resolve().parents[3]
RECORDS = Path(os.environ.get("ATTESTED_RECORDS", ROOT / "docs" / "records"))

INSTALL = """
import glob, pathlib, sys
site = pathlib.Path(glob.glob("/opt/attested/venv/lib/python3*/site-packages")[0])
(site / "attested_matrix.py").write_text(sys.stdin.read())
own = site / "ansible_collections" / "attested" / "kubernetes" / "plugins" / "module_utils"
calls = {
    "bootstrap/order.py": 'before(NodeRun, "_do", lambda run, name, *_rest: "join:" + name.name)',
    "bootstrap/race.py": 'before(Turn, "take", lambda turn: turn._mine.contender.value + ":TAKE")',
    "bootstrap/founder.py": 'before(TpmKeeping, "write", lambda *_some, **_named: "init:KEYS")',
    "kubeadm/operation.py": 'before(Operation, "_perform", lambda one, phase: one._name + ":" + phase.name)',
}
for name, call in calls.items():
    text = (own / name).read_text()
    if "attested_matrix" not in text:
        (own / name).write_text(text + "\\n\\nimport attested_matrix\\n\\nattested_matrix." + call + "\\n")
pathlib.Path("/var/lib/attested-matrix").mkdir(exist_ok=True)
"""
SOONER = f"""
set -e
mkdir -p /etc/systemd/system/{UNIT}.d
printf '[Service]\\nRestartSec=2\\n' > /etc/systemd/system/{UNIT}.d/matrix.conf
systemctl daemon-reload
"""


@pytest.fixture(scope="session")
def road() -> Iterator[Road]:
    """A cluster whose machines strike at a step that they are told."""
    if found := obstacles():
        pytest.skip(found)
    with boot_lab("attested-matrix", "127.76.0") as one:
        faults = (Path(__file__).parent / "attested_matrix.py").read_bytes()
        for machine in (CONTROL_PLANE, WORKER):
            one.inside(machine, "python3", "-c", INSTALL, given=faults)
            one.inside(machine, "sh", "-c", SOONER)
        yield one


@pytest.fixture(scope="session")
def cases() -> Iterator[list[dict[str, Any]]]:
    """What became of each case; written to docs/records at the end (its README says what the fields mean)."""
    done: list[dict[str, Any]] = []
    yield done
    if done:
        now = datetime.now(UTC)
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        body = {
            "version": 1,
            "record": "matrix",
            "date": now.isoformat(timespec="seconds"),
            "commit": commit.stdout.strip(),
            "joined": sum(one["outcome"] == "joined" for one in done),
            "of": len(done),
            "cases": done,
        }
        RECORDS.mkdir(parents=True, exist_ok=True)
        path = RECORDS / f"{now:%Y-%m-%d}-matrix.json"
        path.write_text(json.dumps(body, indent=1) + "\n")
