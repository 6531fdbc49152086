# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent renew`: renews the kubelet's client certificate when it is time; a systemd timer runs it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.host import SystemClock
from ..errors import AttestedError
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..reasons import Reason
from ..result import Result
from ..services.retry_policy import passes_by_itself
from ..services.ticket_store import TicketStore
from .ca_rotation import trust_updater
from .client import JoinTickets
from .config import DEFAULT_PATH, load_node_config
from .journal import NodeJournal
from .renewal import Renewal
from .renewal_record import DIRECTORY, RenewalRecord, alone
from .run_record import RENEW, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .config import NodeConfig
    from .renewal import Renewed

_INTERVAL_SECONDS = 3600


def renew(path: str | Path, *, at_once: bool) -> Renewed:
    """Renew the certificate of this machine if it is due, or ``at_once``; raises as `Renewal.run`."""
    with alone(DIRECTORY):
        return own_renewal(load_node_config(path)).run(at_once=at_once)


def own_renewal(config: NodeConfig) -> Renewal:
    """Return the renewal of this machine; the caller must hold `alone`."""
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    return Renewal(
        config.name,
        machine,
        tickets=JoinTickets(config, None, store=TicketStore(DIRECTORY), handle=None, itself=True, keeps_closed=True),
        journal=NodeJournal(clock=machine.clock),
        directory=DIRECTORY,
    )


def run_kubelet(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Fetch a ticket for this node's kubelet: a certificate, and the CAs to trust.

    Raises as `Renewal.run`.
    """
    if check_mode:
        return Result(changed=True)
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    renewal = own_renewal(load_node_config(params["node_config"]))
    with alone(DIRECTORY):
        done = renewal.run(at_once=True, shorter=True, trust=trust_updater(machine))
    return Result(changed=True, values={"serial": done.validity.serial, "expires": done.validity.ends.isoformat()})


def renew_and_keep(renew_once: Callable[[], Renewed], record: RenewalRecord, *, interval_seconds: int) -> Renewed:
    """Renew; a failure is written to ``record``, with the next attempt in ``interval_seconds``."""
    try:
        done = renew_once()
    except AttestedError as error:
        record.failed(error, next_seconds=interval_seconds, passes=does_pass(error))
        raise
    record.clear()
    return done


def does_pass(error: AttestedError) -> bool:
    """Return whether the cause of a failed renewal may pass by itself."""
    return error.reason is Reason.API_UNREACHABLE or passes_by_itself(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    options = _parser().parse_args(argv)
    record = RenewalRecord(clock=SystemClock())
    try:
        with RunRecord(RENEW, clock=SystemClock()).kept():
            done = renew_and_keep(
                lambda: renew(options.config, at_once=options.now), record, interval_seconds=options.interval
            )
    except AttestedError as error:
        sys.stderr.write(f"attested-agent renew: {error}\n")
        return 1
    until = f"until {done.validity.ends:%Y-%m-%dT%H:%M:%SZ}"
    if done.changed:
        sys.stderr.write(f"attested-agent renew: renewed, serial {done.validity.serial}, good {until}\n")
    else:
        begin = f"{done.validity.renews:%Y-%m-%dT%H:%M:%SZ}"
        sys.stderr.write(f"attested-agent renew: good {until}, renewed from {begin}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent renew", description="Renew the kubelet's certificate with fresh evidence, when it is time."
    )
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    parser.add_argument("--now", action="store_true", help="renew even if it is not due")
    parser.add_argument(
        "--interval",
        type=int,
        default=_INTERVAL_SECONDS,
        metavar="SECONDS",
        help="how often the timer runs this, for attested status (default: %(default)s)",
    )
    return parser
