# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults before steps of a lab machine: install, order, wait, and end.

Orders and answers are in a volume of the machine, so waiting for them needs no command on it and survives its reboot.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support import attested_matrix
from ansible_collections.attested.kubernetes.tests.support.boot_lab import UNIT
from ansible_collections.attested.kubernetes.tests.support.boundaries import FIRST_JOIN, drawn, shuffled
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

FAULTS = ("kill", "reboot", "cut")
PATIENCE_SECONDS = 300
VOLUME = Path("/var/lib/containerd")

CALLS = {
    "node/order.py": 'before(NodeRun, "_do", lambda run, name, *_rest: "join:" + name.name)',
    "node/claim.py": 'before(Turn, "take", lambda turn: turn._mine.contender.value + ":TAKE")',
    "node/init_machine.py": 'before(TpmKeeping, "write", lambda *_some, **_named: "init:KEYS")',
    "node/bootstrapper.py": 'default(Bootstrapper, "linger_seconds", 10.0)',
    "kubeadm/operation.py": 'before(Operation, "_perform", lambda one, phase: one._name + ":" + phase.name)',
}
"""The code that is appended to the deployed copy of each module."""

_INSTALL = f"""
import glob, pathlib, sys
site = pathlib.Path(glob.glob("/opt/attested/venv/lib/python3*/site-packages")[0])
(site / "attested_matrix.py").write_text(sys.stdin.read())
own = site / "ansible_collections" / "attested" / "kubernetes" / "plugins" / "module_utils"
for name, call in {CALLS!r}.items():
    text = (own / name).read_text()
    if "attested_matrix" not in text:
        (own / name).write_text(text + "\\n\\nimport attested_matrix\\n\\nattested_matrix." + call + "\\n")
pathlib.Path("{attested_matrix.PLACE}").mkdir(exist_ok=True)
"""
_WATCH = f"""
import glob, pathlib, sys
tops = "/opt/attested/venv-*/lib/python3*/site-packages", "/usr/local/lib/python3*/dist-packages"
for place in (pathlib.Path(one) for top in tops for one in glob.glob(top)):
    (place / "attested_matrix.py").write_text(sys.argv[1])
    (place / "attested_matrix.pth").write_text("import attested_matrix; attested_matrix.watch()\\n")
pathlib.Path("{attested_matrix.PLACE}").mkdir(exist_ok=True)
"""
_SOONER = f"""
set -e
mkdir -p /etc/systemd/system/{UNIT}.d
printf '[Service]\\nRestartSec=2\\n' > /etc/systemd/system/{UNIT}.d/matrix.conf
systemctl daemon-reload
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A fault, and the point before which it is injected."""

    point: str
    fault: str

    @property
    def reached(self) -> str:
        """The name of the point in the code: a rejoining member runs the steps of a join."""
        return self.point.replace("rejoin:", "join:")

    def __str__(self) -> str:
        """Return a description."""
        return f"{self.fault} before {self.point}"


def slice_of_the_matrix(seed: str) -> list[Order]:
    """Return one fault of each kind before different steps of a first join, in the order of the steps."""
    points = drawn(FIRST_JOIN, count=len(FAULTS), seed=seed)
    return [Order(point=one, fault=fault) for one, fault in zip(points, shuffled([*FAULTS], seed=seed), strict=True)]


def put_faults_into(road: Road, *machines: str) -> None:
    """Install fault injection into the deployed modules of machines."""
    faults = Path(attested_matrix.__file__).read_bytes()
    for machine in machines:
        road.inside(machine, "python3", "-c", _INSTALL, given=faults)
        road.inside(machine, "sh", "-c", _SOONER)


def put_faults_into_tasks(road: Road, *machines: str) -> None:
    """Install fault injection into modules that a playbook copies to machines."""
    faults = Path(attested_matrix.__file__).read_text(encoding="utf-8")
    for machine in machines:
        road.inside(machine, "python3", "-c", _WATCH, faults)


def tell(road: Road, machine: str, *orders: Order) -> None:
    """Write the orders of the machine, which runs them in order; remove earlier ones."""
    place = place_of(road, machine)
    for name in (attested_matrix.STRUCK, attested_matrix.HELD):
        (place / name).unlink(missing_ok=True)
    (place / attested_matrix.ORDERS).write_text(
        json.dumps([{**asdict(order), "point": order.reached} for order in orders])
    )


def suffer(road: Road, machine: str, *orders: Order) -> None:
    """Wait until all faults were injected, and for the boot after a reboot; a cut ends by itself."""
    for number, order in enumerate(orders):
        wait_for(partial(_has_struck, road, machine, number), seconds=PATIENCE_SECONDS)
        struck = struck_on(road, machine)[number]
        assert struck["point"] == order.reached
        if order.fault == "reboot":
            road.lab.wait_for_boot(machine, other_than=struck["boot"], seconds=PATIENCE_SECONDS)


def _has_struck(road: Road, machine: str, number: int) -> bool:
    return len(struck_on(road, machine)) > number


def let_go(road: Road, machine: str) -> None:
    """Release a held machine."""
    (place_of(road, machine) / attested_matrix.HELD).unlink()


def orders_left(road: Road, machine: str) -> int:
    """Return the number of remaining orders of the machine."""
    return len(json.loads((place_of(road, machine) / attested_matrix.ORDERS).read_text()))


def struck_on(road: Road, machine: str) -> list[dict[str, str]]:
    """Return the injected faults since the last orders, each with its boot id."""
    try:
        found: list[dict[str, str]] = json.loads((place_of(road, machine) / attested_matrix.STRUCK).read_text())
    except FileNotFoundError:
        return []
    return found


def place_of(road: Road, machine: str) -> Path:
    """Return the directory of the orders on the host."""
    volume = road.lab.directory / "machines" / machine / "volumes" / VOLUME.name
    return volume / attested_matrix.PLACE.relative_to(VOLUME)
