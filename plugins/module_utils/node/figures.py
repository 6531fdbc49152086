# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent figures`: writes metrics of this node to files that node_exporter exports (ADR 0079).

`node.prom` holds the node's own metrics: last successes, ends of certificates, units. `services.prom` holds the
metrics page of the join service, on control planes. Neither file contains secrets or text from peers, so both are
world-readable.
"""

from __future__ import annotations

import argparse
import http.client
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from .._deps.crypto import unreadable
from ..core.command import SystemRunner
from ..core.documents import load_document
from ..core.files import read_bytes, remove, write_atomic
from ..core.host import SystemClock
from ..core.metrics import Figure, figures_file, known_reason
from ..errors import AttestedError, SystemFault
from ..keyservice.backups import newest_backup
from ..kubeadm.certificate_renewal import read_leaves
from ..kubeadm.certificate_table import AUTHORITIES
from ..kubeadm.credential import validity, validity_of
from ..kubeadm.operation import Machine, is_control_plane
from ..kubeadm.spec import KubernetesPaths
from ..reasons import Reason
from .journal import NodeJournal, NodePhase
from .run_record import BACKUP, COMMANDS, RunRecord
from .status import read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from typing import TypeAlias

    Values: TypeAlias = dict[tuple[tuple[str, str], ...], float]

DIRECTORY = Path("/run/attested-figures")
UNITS = (
    "attested-api-endpoint",
    "attested-join-service",
    "attested-key-service",
    "attested-verification-service",
    "attested-witness",
    "containerd",
    "kubelet",
)
"""Services of a node that run all the time."""

_JOIN_CONFIG = "etc/attested/join-service.yml"
_KUBELET_SERVING = "kubelet-server-current.pem"
_PAGE_SECONDS = 5.0
_PAGE_BYTES = 1 << 20
_PAGE_LINES = 5000
_PAGE_LINE = re.compile(
    r"# (?:HELP|TYPE) attested_(?:join|key)_[a-z_]+ [ -~]*"
    r'|attested_(?:join|key)_[a-z_]+(?:\{[a-z]+="[\w.:+-]*"(?:,[a-z]+="[\w.:+-]*")*\})? [0-9.e+-]+',
    re.ASCII,
)
"""The allowed lines of the join service's page: if that exposed service is compromised, no other metric changes."""


class NodeFigures:
    """Reads the metrics of one machine.

    A metric that cannot be read is omitted, and its error stored in `unreadable`.
    """

    def __init__(
        self, machine: Machine, journal: NodeJournal, *, page: Callable[[int, str], tuple[int, bytes]] | None = None
    ) -> None:
        """Read ``machine``; ``page`` reads a path of a loopback port."""
        self._machine = machine
        self._root = machine.paths.root
        self._journal = journal
        self._page = page or loopback_page
        self.unreadable: dict[str, AttestedError] = {}

    def node(self) -> bytes:
        """Return `node.prom`."""
        parts: dict[str, Callable[[], tuple[Figure, ...]]] = {
            "certificates": self._certificates,
            "runs": self._runs,
            "services": self._services,
            "status": self._status,
            "units": self._units,
        }
        found = [figure for name, part in parts.items() for figure in self._readable(name, part)]
        now = self._machine.clock.now().timestamp()
        return figures_file(
            (
                Figure(name="attested_node_figures_time_seconds", text="When this was written.", values={(): now}),
                Figure(
                    name="attested_node_figures_unreadable",
                    text="Parts of this file that could not be read.",
                    values={(("part", name),): float(name in self.unreadable) for name in parts},
                ),
                *found,
            )
        )

    @cached_property
    def services(self) -> bytes | None:
        """Return `services.prom`; None if this machine has no join service, or the service does not answer."""
        try:
            port = self._join_port()
            return page_figures(self._page(port, "/metrics")[1]) if port else None
        except (AttestedError, ValueError):
            return None

    def _readable(self, name: str, part: Callable[[], tuple[Figure, ...]]) -> tuple[Figure, ...]:
        try:
            return part()
        except AttestedError as error:
            self.unreadable[name] = error
        except unreadable():
            self.unreadable[name] = SystemFault(f"expected the {name} of this node", reason=Reason.FILE_UNUSABLE)
        return ()

    def _certificates(self) -> tuple[Figure, ...]:
        paths = self._machine.paths
        ends: dict[str, datetime] = {}
        kubelet = validity(paths)
        if kubelet is not None:
            ends["kubelet"] = kubelet.ends
        files = {name: self._root / path for name, path in AUTHORITIES.items()}
        files["kubelet-serving"] = paths.kubelet_credential.with_name(_KUBELET_SERVING)
        ends |= {name: validity_of(read_bytes(path)).ends for name, path in files.items() if path.exists()}
        if paths.ca.with_suffix(".key").exists():
            ends |= {leaf.certificate.name: leaf.until for leaf in read_leaves(paths)}
        text = "When a certificate of this node ends, or its CA if that ends first."
        values: Values = {(("certificate", name),): end.timestamp() for name, end in sorted(ends.items())}
        return (Figure(name="attested_node_certificate_end_time_seconds", text=text, values=values),)

    def _runs(self) -> tuple[Figure, ...]:
        good: Values = {}
        failed: Values = {}
        for command in COMMANDS:
            if not (self._root / f"etc/systemd/system/attested-{command}.timer").exists():
                continue
            run = RunRecord(command, self._machine.paths.lock_marker.parent, clock=self._machine.clock).load()
            good[(("command", command),)] = run.good_at.timestamp() if run.good_at else 0.0
            if run.failed_at:
                failed[(("command", command), ("reason", known_reason(run.reason)))] = run.failed_at.timestamp()
        kept = (("command", BACKUP),)
        if kept in good:  # backups stay over a reboot, while the record of the run does not
            good[kept] = max(good[kept], newest_backup(self._root / "var/lib/attested/backups"))
        return (
            Figure(
                name="attested_node_last_success_time_seconds",
                text="When a command that a timer runs succeeded last; 0: not in this boot, or no backup.",
                values=good,
            ),
            Figure(
                name="attested_node_last_failure_time_seconds",
                text="When a command that a timer runs failed last, if it has not succeeded since.",
                values=failed,
            ),
        )

    def _services(self) -> tuple[Figure, ...]:
        port = self._join_port()
        values: Values = {}
        if port:
            values[(("service", "join"),)] = float(self._is_ready(port))
            values[(("service", "key"),)] = float(b"\nattested_key_" in (self.services or b""))
        text = "Whether a service of this control plane answers and can do its work."
        return (Figure(name="attested_node_service_ready", text=text, values=values),)

    def _status(self) -> tuple[Figure, ...]:
        status = read_status(self._machine, self._journal)
        phase = status.state.phase
        return (
            Figure(
                name="attested_node_needs_operator",
                text="Whether attested status reports that a person is needed, with the reason code.",
                values={(("reason", known_reason(status.state.reason or "")),): float(status.needs_person)},
            ),
            Figure(
                name="attested_node_joined",
                text="Whether this machine is a node of its cluster.",
                values={(): float(phase is NodePhase.JOINED)},
            ),
            Figure(
                name="attested_node_control_plane",
                text="Whether this machine is a control plane.",
                values={(): float(is_control_plane(self._machine))},
            ),
        )

    def _units(self) -> tuple[Figure, ...]:
        argv = ["systemctl", "show", "--property=Id,LoadState,ActiveState,ConditionResult"]
        shown = self._machine.runner.run([*argv, *(f"{name}.service" for name in UNITS)]).stdout
        values: Values = {}
        for block in shown.decode("utf-8", "replace").split("\n\n"):
            properties = dict(line.partition("=")[::2] for line in block.splitlines())
            name = properties.get("Id", "").removesuffix(".service")
            # systemd skips a unit whose conditions do not hold: that service is not expected to run
            expected = properties.get("LoadState") == "loaded" and properties.get("ConditionResult") == "yes"
            if name in UNITS and expected:
                values[(("unit", name),)] = float(properties.get("ActiveState") == "active")
        text = "Whether a service of this node runs."
        return (Figure(name="attested_node_unit_active", text=text, values=values),)

    def _join_port(self) -> int:
        path = self._root / _JOIN_CONFIG
        if not path.exists():
            return 0
        found = load_document(read_bytes(path))
        port = found.get("metrics_port", 0) if isinstance(found, dict) else 0
        return port if isinstance(port, int) else 0

    def _is_ready(self, port: int) -> bool:
        try:
            status, _text = self._page(port, "/readyz")
        except AttestedError:
            return False
        return status == http.HTTPStatus.OK


def page_figures(text: bytes) -> bytes:
    """Return the lines of the join service's page that are metrics of ours, at most `_PAGE_LINES`."""
    lines = text.decode("ascii", "replace").split("\n")
    kept = [line for line in lines if _PAGE_LINE.fullmatch(line)][:_PAGE_LINES]
    return "".join(f"{line}\n" for line in kept).encode()


def loopback_page(port: int, path: str) -> tuple[int, bytes]:
    """Return HTTP status and body of a page at 127.0.0.1; raises PEER_UNREACHABLE."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PAGE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_PAGE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise SystemFault(f"expected a page at 127.0.0.1:{port}, got none", reason=Reason.PEER_UNREACHABLE) from error
    finally:
        connection.close()


def write_figures(figures: NodeFigures, directory: Path) -> None:
    """Write both files atomically; remove services.prom if it has no content. Raises FILE_UNUSABLE."""
    _write(directory / "services.prom", figures.services)
    _write(directory / "node.prom", figures.node())


def _write(path: Path, text: bytes | None) -> None:
    if text is None:
        remove(path)
    else:
        write_atomic(path, text, mode=0o644)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(
        prog="attested-agent figures", description="Write the metrics of this node where node_exporter reads them."
    )
    parser.add_argument(
        "--directory", type=Path, default=DIRECTORY, help="where the files *.prom go (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    clock = SystemClock()
    machine = Machine(runner=SystemRunner(), clock=clock, paths=KubernetesPaths())
    figures = NodeFigures(machine, NodeJournal(clock=clock))
    try:
        write_figures(figures, options.directory)
    except AttestedError as error:
        sys.stderr.write(f"attested-agent figures: {error}\n")
        return 1
    sys.stderr.writelines(_lines(figures.unreadable.items()))
    return 0


def _lines(unreadable: Iterable[tuple[str, AttestedError]]) -> list[str]:
    return [f"attested-agent figures: no {name}: {error}\n" for name, error in unreadable]
