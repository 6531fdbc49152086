# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent reattest`: pushes fresh evidence of this node to a join service of its cluster; a timer runs it."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from ..core.host import SystemClock, SystemRandom
from ..errors import AttestedError
from ..services.handshake_evidence import OccasionalAttester
from ..services.join_client import JoinConfig, JoinMachine, push_evidence
from ..services.retry_policy import first_window
from ..services.ticket_store import TicketStore
from ..tpm.client import open_tpm
from ..transport.pins import JoinCaPins
from .config import DEFAULT_PATH, load_node_config
from .retry import Backoff, ask_again
from .run_record import REATTEST, RunRecord
from .witness import read_event_logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from .config import NodeConfig

_WAIT_SECONDS = 120


def push(path: str | Path) -> tuple[str, datetime]:
    """Push evidence once; return the accepting endpoint and the time when the node is overdue.

    Raises the refusal.
    """
    config = load_node_config(path)
    clock = SystemClock()
    machine = JoinMachine(
        attester=OccasionalAttester(partial(open_tpm, config.tcti)),
        read_logs=lambda: read_event_logs(config.logs),
        store=TicketStore(),
        clock=clock,
    )
    return push_evidence(_join_config(config), machine)


def _join_config(config: NodeConfig) -> JoinConfig:
    return JoinConfig(
        endpoints=tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in config.endpoints),
        pins=JoinCaPins.from_pem(config.join_ca),
        cluster_id=config.cluster_id,
        node_name=config.name,
        own_addresses=frozenset({config.name}),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(
        prog="attested-agent reattest", description="Push fresh evidence of this node to its cluster."
    )
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    options = parser.parse_args(argv)
    backoff = Backoff(first=first_window, random=SystemRandom())
    clock = SystemClock()
    try:
        with RunRecord(REATTEST, clock=clock).kept():
            endpoint, due = ask_again(
                lambda: push(options.config), pause=backoff.pause, clock=clock, wait_seconds=_WAIT_SECONDS
            )
    except AttestedError as error:
        sys.stderr.write(f"attested-agent reattest: {error}\n")
        return 1
    sys.stderr.write(f"attested-agent reattest: {endpoint} accepted it, overdue at {due:%Y-%m-%dT%H:%M:%SZ}\n")
    return 0
