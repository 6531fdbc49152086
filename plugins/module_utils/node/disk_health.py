# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent disk-health`: sets a condition of this machine's Node if the state disk is corrupt (docs/adr/0049).

A systemd timer runs it. It reads only the kernel's log, not the disk.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..core.host import SystemClock
from ..disk.kernel_log import KmsgLog, damage_now
from ..errors import AttestedError
from ..kubeadm.api import KubeconfigNodeWriter
from ..kubeadm.spec import KubernetesPaths
from ..policy.standing import shown_time
from ..reasons import Reason
from .config import DEFAULT_PATH, load_node_config
from .disk_record import DiskRecord, Seen
from .run_record import DISK_HEALTH, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ..core.host import Clock
    from ..disk.kernel_log import Damage

CONDITION = "StateDiskCorrupt"
CORRUPT = "SectorCorrupt"
SOUND = "NoCorruption"
REPORT_AGAIN = timedelta(minutes=5)
"""As often as a kubelet reports its own conditions, so that a Node that was deleted and recreated gets ours again."""


class NodeConditions(Protocol):
    """The conditions of a Node, by the kubelet's own credential (`kubeadm.api`)."""

    def conditions(self, name: str) -> tuple[Mapping[str, Any], ...] | None:
        """Return the conditions of Node ``name``, None if the Node does not exist."""

    def set_condition(self, name: str, condition: Mapping[str, Any]) -> None:
        """Write one condition; raises API_UNREACHABLE, KUBELET_CREDENTIAL_REFUSED."""


def plan_condition(found: Sequence[Mapping[str, Any]], seen: Seen, *, now: datetime) -> dict[str, Any]:
    """Return the condition for the damage ``seen``; ``found`` are the present conditions of the Node."""
    was: Mapping[str, Any] = next((one for one in found if one["type"] == CONDITION), {})
    status = "True" if seen.damage else "False"
    since = was.get("lastTransitionTime") if was.get("status") == status else None
    return {
        "type": CONDITION,
        "status": status,
        "reason": CORRUPT if seen.damage else SOUND,
        "message": _message(seen),
        "lastHeartbeatTime": shown_time(now),
        "lastTransitionTime": since or shown_time(now),
    }


def _message(seen: Seen) -> str:
    if not seen.damage:
        return "no read of the state disk has failed in this boot; next: nothing"
    return (
        f"{seen.damage} of the state disk did not read as written, the last found at {shown_time(seen.found_at)}; "
        f"each read of them fails; next: attested explain {Reason.STATE_DISK_CORRUPT.name}"
    )


class DiskHealth:
    """Reports damage of the state disk as a condition of the machine's Node."""

    def __init__(
        self,
        name: str,
        *,
        look: Callable[[], Damage],
        node: NodeConditions,
        record: DiskRecord,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        """Report for Node ``name``.

        ``look`` returns the damage in the kernel's log, ``log`` receives each change.
        """
        self._name = name
        self._look = look
        self._node = node
        self._record = record
        self._clock = clock
        self._log = log

    def run(self) -> Seen:
        """Look once and report new damage, or report again after some minutes.

        Raises what prevented the report. The damage is saved before it is reported: the cluster may be unreachable, or
        the credential unreadable.
        """
        now = self._clock.now()
        was = self._record.load()
        seen = was.with_found(self._look(), now=now)
        if seen != was:
            self._record.save(seen)
            self._log(str(seen.error()))
        return seen if _is_fresh(seen, now) else self._report(seen, now)

    def _report(self, seen: Seen, now: datetime) -> Seen:
        found = self._node.conditions(self._name)
        if found is None:
            return seen
        condition = plan_condition(found, seen, now=now)
        self._node.set_condition(self._name, condition)
        reported = seen.reported(now=now)
        self._record.save(reported)
        if seen.reported_at is None:
            self._log(f"{CONDITION} of Node {self._name} is {condition['status']} ({condition['reason']})")
        return reported


def _is_fresh(seen: Seen, now: datetime) -> bool:
    """Return whether the last report is recent.

    A report from the future counts as old, since a clock may be set back.
    """
    return seen.reported_at is not None and timedelta() <= now - seen.reported_at < REPORT_AGAIN


def _log(text: str) -> None:
    sys.stderr.write(f"attested-agent disk-health: {text}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 whatever was seen, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(
        prog="attested-agent disk-health", description="Report on this machine's Node whether its state disk is sound."
    )
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        with RunRecord(DISK_HEALTH, clock=SystemClock()).kept():
            DiskHealth(
                load_node_config(options.config).name,
                look=lambda: damage_now(KmsgLog()),
                node=KubeconfigNodeWriter(KubernetesPaths().kubelet_config),
                record=DiskRecord(),
                clock=SystemClock(),
                log=_log,
            ).run()
    except AttestedError as error:
        _log(str(error))
        return 1
    return 0
