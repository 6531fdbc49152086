# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent node-boot`: makes a node of this machine at each boot, only from the site's signed repository.

fetch → verify → write → measure → play (ADR 0022). The exit code is 0 if the play succeeded, 1 if another start may
succeed, 78 if a person is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.command import SystemRunner
from ..core.files import make_directory, read_bytes, require_tmpfs, write_atomic
from ..core.host import release
from ..core.logs import open_log
from ..core.runtime import load_config
from ..errors import AttestedError, SystemFault
from ..reasons import Reason
from ..source.obtain import Machine, Places, Source
from ..source.version import Installed, Measured, parse_measured
from .client import MachineLock
from .config import DEFAULT_PATH, parse_node_config
from .playbook import DIRECTORY, PlaybookOrder, RunnerPlaybooks, TaskLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.logs import Log
    from ..evidence.eventlog.nodelock import LockReading
    from ..source.config import SourceConfig
    from .config import NodeConfig
    from .playbook import Playbooks

CONFIG = "/etc/attested/boot-source.yml"
PLAYBOOK = Path(__file__).parents[3] / "playbooks" / "node.yml"
INVENTORY = "hosts.yml"

_CONFIG_BYTES = 64 << 10
_EX_CONFIG = 78
"""EX_CONFIG of sysexits.h; systemd does not restart the unit after it."""

_PERSON_NEEDED = frozenset(
    {
        Reason.CONFIG_INVALID,
        Reason.NODELOCK_FOREIGN,
        Reason.NODELOCK_OTHER_CLUSTER,
        Reason.NODE_CONFIG_MALFORMED,
        Reason.SOURCE_STATE_MALFORMED,
        Reason.SOURCE_TOO_LATE,
    }
)
"""Reasons that a later start in the same boot cannot repair; a faulty repository may be repaired at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBootConfig:
    """The configuration file, written by the role `boot_source`: the hash of the manifest that `prepare` installed."""

    bundle: str


class MeasuringLock(Protocol):
    """The lock of this machine (`MachineLock`)."""

    def read(self) -> LockReading:
        """Return the present reading."""

    def measure(self, text: str) -> bool:
        """Extend the register by ``text``; return whether it was not yet extended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBoot:
    """One start of the program."""

    node: NodeConfig
    source: SourceConfig
    machine: Machine
    lock: MeasuringLock
    playbooks: Playbooks
    log: Log
    places: Places = field(default_factory=Places)
    playbook: Path = PLAYBOOK

    def run(self) -> None:
        """Make a node of this machine.

        Raises SOURCE_…, NODELOCK_…, PLAYBOOK_… and the reason of a failed module.
        """
        source = Source(self.source, runner=SystemRunner(), observer=self.log, places=self.places)
        site = source.obtain(self.machine, measured=_measured(self.lock.read()))
        new = self.lock.measure(site.measured.to_text())
        self.log.event("site_measured", commit=site.measured.commit, new=new)
        self.playbooks.run(self._order(site.path), TaskLog(self.log))
        self.log.event("node_made", commit=site.measured.commit, version=site.measured.version)

    def _order(self, site: Path) -> PlaybookOrder:
        """Return the play for this machine only, with a local connection whatever the site's inventory sets.

        A machine that the site does not list is in no group, so no play matches it, which is an error. The inventory's
        settings for privilege escalation are for ssh; this program already runs as root.
        """
        machine = self.places.memory / "machine.yml"
        write_atomic(machine, json.dumps({"all": {"hosts": {self.node.name: {}}}}).encode())
        return PlaybookOrder(
            playbook=self.playbook,
            inventory=site / INVENTORY,
            limit=self.node.name,
            machine=machine,
            variables={
                "ansible_become": False,
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "attested_bootstrapper": False,
            },
        )


def boot_of(node_config: str, config: str, *, log: Log) -> NodeBoot:
    """Return the boot of this machine.

    Raises NODE_CONFIG_MALFORMED, CONFIG_INVALID, FILE_UNUSABLE, NOT_TMPFS.
    """
    content = read_bytes(node_config, limit=_CONFIG_BYTES)
    node = parse_node_config(content, where=node_config)
    if node.source is None:
        raise SystemFault(
            f"expected the section source in {node_config}, found none; set attested_source_url and run prepare",
            reason=Reason.CONFIG_INVALID,
        )
    installed = Installed(collection=release(), bundle=load_config(NodeBootConfig, config).bundle)
    make_directory(DIRECTORY, mode=0o700)
    require_tmpfs(DIRECTORY)
    return NodeBoot(
        node=node,
        source=node.source,
        machine=Machine(installed=installed, node_config=hashlib.sha256(content).hexdigest()),
        lock=MachineLock(node),
        playbooks=RunnerPlaybooks(),
        log=log,
    )


def exit_code(error: AttestedError) -> int:
    """Return 1 if another start may succeed, 78 if only a person can help."""
    return _EX_CONFIG if error.reason in _PERSON_NEEDED else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code, the error on standard error."""
    options = _parser().parse_args(argv)
    try:
        boot_of(options.node_config, options.config, log=open_log()).run()
    except AttestedError as error:
        sys.stderr.write(f"attested-agent node-boot: {error}\n")
        return exit_code(error)
    return 0


def _measured(reading: LockReading) -> Measured | None:
    return parse_measured(reading.source) if reading.source else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent node-boot", description="Make a node of this machine from the site's signed repository."
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--node-config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    return parser
