# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module `support_material_info` does."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError
from ..kubeadm import KubernetesPaths, Machine
from ..node import NodeJournal
from ..node.status import read_status
from ..result import Result
from ..system import SystemClock, SystemRunner
from ..tpm import PCR_COUNT, open_tpm
from .catalogue import node_sources
from .collect import Collector
from .hider import secrets_of_machine
from .material import LeftOut, Material, render_material

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..system import Runner


def run_material(
    params: Mapping[str, Any], _check_mode: bool, *, runner: Runner | None = None, root: Path = Path("/")
) -> Result:
    """Gather what may leave this machine; changes nothing, and fails for no source that fails."""
    running = runner or SystemRunner()
    collector = Collector(runner=running, hider=secrets_of_machine(root), root=root)
    documents: dict[str, Mapping[str, Any]] = {}
    failed: list[LeftOut] = []
    readers: dict[str, Callable[[], Mapping[str, Any]]] = {
        "status": lambda: _status(running, root),
        "registers": lambda: _registers(params["tcti"], root),
    }
    for name, read in readers.items():
        try:
            documents[name] = read()
        except (AttestedError, OSError) as error:
            why = error.message if isinstance(error, AttestedError) else str(error)
            failed.append(LeftOut(what=name, why=why[:300]))
    sources = node_sources(firmware_log=params["firmware_log"], userspace_log=params["userspace_log"])
    gathered = collector.collect(sources, more=documents)
    material = Material(pieces=gathered.pieces, left_out=(*failed, *gathered.left_out))
    return Result(
        values={
            "material": base64.b64encode(render_material(material)).decode("ascii"),
            "collected": len(material.pieces),
            "left_out": [f"{one.what}: {one.why}" for one in material.left_out],
            "hidden": sum(piece.hidden for piece in material.pieces),
        }
    )


def _status(runner: Runner, root: Path) -> Mapping[str, Any]:
    clock = SystemClock()
    machine = Machine(runner=runner, clock=clock, paths=KubernetesPaths(root=root))
    return read_status(machine, NodeJournal(root / "var/lib/attested/node.json", clock=clock)).as_result()


def _registers(tcti: str, root: Path) -> Mapping[str, Any]:
    with open_tpm(tcti, lock_directory=root / "run/attested") as tpm:
        properties = tpm.properties()
        registers = tpm.pcr_read(range(PCR_COUNT))
    maker = f"{properties.manufacturer} {properties.vendor}".strip()
    return {"tpm": maker, "registers": {str(index): value.hex() for index, value in registers.items()}}
