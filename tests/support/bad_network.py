# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network with packet loss in its own namespace, or a relay with delay.

As a program, run by `unshare --net`: a machine requests its ticket while three of ten packets to and from the join
service are dropped. Prints JSON: number of requests, errors, and the node of the ticket.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.node.retry import Backoff, ask_again
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import fetch_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import first_window
from ansible_collections.attested.kubernetes.tests.bench.ticket_rate import install
from ansible_collections.attested.kubernetes.tests.support.api_bed import api_bed
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import TicketMaterial

PATIENCE_SECONDS = 900.0
PERCENT = 30
_CHUNK = 1 << 16


@asynccontextmanager
async def slow_relay(port: int, *, round_trip: float) -> AsyncIterator[int]:
    """Yield a port that is forwarded to ``port``; each piece arrives half a ``round_trip`` (seconds) later."""
    going: set[asyncio.Task[None]] = set()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond = await asyncio.open_connection("127.0.0.1", port)
        going.update(
            asyncio.create_task(_late(*pair, seconds=round_trip / 2))
            for pair in ((reader, beyond[1]), (beyond[0], writer))
        )

    server = await asyncio.start_server(through, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
        for one in going:
            one.cancel()


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, seconds: float) -> None:
    """Forward all pieces when they are due; later pieces do not wait for earlier ones."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(due - loop.time())
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)

    delivering = asyncio.create_task(deliver())
    with suppress(OSError):
        piece = b"more"
        while piece:
            piece = await reader.read(_CHUNK)
            pieces.put_nowait((loop.time() + seconds, piece))
        await delivering
    delivering.cancel()
    writer.close()


def lose(port: int, *, percent: int) -> None:
    """Drop this percentage of packets to and from ``port``, at random."""
    rules = f"""
    table inet loss {{
      chain in {{
        type filter hook input priority 0;
        tcp dport {port} numgen random mod 100 < {percent} counter drop
        tcp sport {port} numgen random mod 100 < {percent} counter drop
      }}
    }}
    """
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)


def lost() -> int:
    """Return the number of dropped packets."""
    listed = subprocess.run(["nft", "--json", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    rules = [one["rule"]["expr"] for one in json.loads(listed)["nftables"] if "rule" in one]
    return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)


def persistent(machine: Machine, errors: list[str], **known: object) -> TicketMaterial:
    """Request a ticket like a node, with its pauses, until it arrives; ``errors`` receives each failure."""

    def waits(error: AttestedError, _seconds: float) -> None:
        errors.append(error.code)

    return ask_again(
        lambda: fetch_ticket(machine.config(**known), machine.machine),
        pause=Backoff(first=first_window, random=SystemRandom()).pause,
        clock=SystemClock(),
        wait_seconds=PATIENCE_SECONDS,
        waits=waits,
    )


def main() -> None:
    """Start the services of a cluster, then the loss, then request the ticket."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="attested-loss-") as scratch, api_bed(Path(scratch)) as api:
        install(api)
        bed = ServiceBed(api)
        try:
            bed.start()
            machine = Machine("w-loss", bed, Path(scratch) / "machine")
            machine.enroll()
            lose(int(bed.endpoint.rpartition(":")[2]), percent=PERCENT)
            errors: list[str] = []
            ticket = persistent(machine, errors)
            found = {
                "errors": errors,
                "lost": lost(),
                "disk": ticket.public.disk_id,
                "identity": machine.identity()["status"],
            }
            json.dump(found, sys.stdout)
        finally:
            bed.stop()


if __name__ == "__main__":
    main()
