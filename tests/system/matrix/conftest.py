# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labs of the matrix, with faults in their machines, and the record of what became of the cases."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.boot_lab import CONTROL_PLANE, UNIT, WORKER, boot_lab
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.records import keep_case

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
THREE = ("-e", '{"lab_bootstrapper": true, "lab_control_planes": 3, "lab_workers": 0}')
SOONER = f"""
set -e
mkdir -p /etc/systemd/system/{UNIT}.d
printf '[Service]\\nRestartSec=2\\n' > /etc/systemd/system/{UNIT}.d/matrix.conf
systemctl daemon-reload
"""


def put_faults_into(road: Road, *machines: str) -> None:
    """Let machines of a cluster strike at a step that they are told."""
    faults = (Path(__file__).parent / "attested_matrix.py").read_bytes()
    for machine in machines:
        road.inside(machine, "python3", "-c", INSTALL, given=faults)
        road.inside(machine, "sh", "-c", SOONER)


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """A control plane and a worker."""
    if found := obstacles():
        pytest.skip(found)
    with boot_lab("attested-matrix", "127.76.0") as one:
        put_faults_into(one, CONTROL_PLANE, WORKER)
        yield one


@pytest.fixture(scope="module")
def planes() -> Iterator[Road]:
    """Three control planes: two are enough to go on without the third."""
    if found := obstacles():
        pytest.skip(found)
    with boot_lab("attested-planes", "127.78.0", words=THREE, followers=("cp-2", "cp-3")) as one:
        put_faults_into(one, "cp-3")
        yield one


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """One line of the record; what does not say otherwise has failed."""
    point, fault = (request.node.callspec.params[name] for name in ("point", "fault"))
    line = {"point": point, "fault": fault, "outcome": "failed", "seconds": 0.0}
    began = time.monotonic()
    yield line
    line["seconds"] = round(time.monotonic() - began, 1)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    keep_case(RECORDS, line, commit=commit.stdout.strip(), now=datetime.now(UTC))
