# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the proxy of a worker costs beside a direct connection to the same server, in the same run, interleaved.

The proxy is a process of its own, as on a node; the server and the clients are this one. TLS is left out: it goes
through the proxy as any bytes do, and would only hide what that costs.
Usage: python tests/bench/api_endpoint.py [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.endpoint_bed import ControlPlane, Program, program

POUR_BYTES = 64 << 20
STREAMS = 200
_PIECE = bytes(1 << 18)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each line with as many bytes as it says."""
    while line := await reader.readline():
        left = int(line)
        while left > 0:
            writer.write(_PIECE[:left])
            await writer.drain()
            left -= len(_PIECE)


async def fetch(port: int, size: int) -> float:
    """Return how many seconds a new connection, a question and ``size`` bytes take."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"%d\n" % size)
    left = size
    while left:
        left -= len(await reader.read(left))
    writer.close()
    return time.perf_counter() - begun


async def medians(direct: int, proxied: int, *, size: int, rounds: int) -> tuple[float, float]:
    """Return the median seconds through the proxy and without it."""
    taken: dict[int, list[float]] = {direct: [], proxied: []}
    for _round in range(rounds):
        for port, found in taken.items():
            found.append(await fetch(port, size))
    return statistics.median(taken[proxied]), statistics.median(taken[direct])


async def after_a_death(used: ControlPlane, proxy: Program) -> float:
    """Return how many seconds a new connection takes once the control plane in use is gone."""
    await used.die()
    begun = time.perf_counter()
    while True:
        try:
            await asyncio.wait_for(fetch(proxy.port, 1), 1)
        except (OSError, TimeoutError):
            continue
        return time.perf_counter() - begun


async def memory(proxy: Program) -> float:
    """Return the megabytes of the proxy with many streams open."""
    streams = [await asyncio.open_connection("127.0.0.1", proxy.port) for _one in range(STREAMS)]
    for reader, writer in streams:
        writer.write(b"1\n")
        await reader.readexactly(1)
    megabytes = resident(proxy.process.pid)
    for _reader, writer in streams:
        writer.close()
    return megabytes


def resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def run(rounds: int) -> None:
    """Measure and report."""
    first, second = ControlPlane(serve), ControlPlane(serve)
    await first.start()
    await second.start()
    with tempfile.TemporaryDirectory(prefix="endpoint-") as directory:
        async with program(Path(directory), [first.address, second.address]) as proxy:
            asked, asked_direct = await medians(second.port, proxy.port, size=1, rounds=rounds)
            poured, poured_direct = await medians(second.port, proxy.port, size=POUR_BYTES, rounds=max(3, rounds // 40))
            before = first.taken
            occupied = await memory(proxy)
            used, other = (first, second) if first.taken > before else (second, first)
            moved = await after_a_death(used, proxy)
    await other.die()
    report(
        Figure(
            name="a new connection and its answer",
            value=asked * 1000,
            unit="ms",
            baseline_name="direct",
            baseline=asked_direct * 1000,
        ),
        Figure(
            name="64 MB over one stream",
            value=poured * 1000,
            unit="ms",
            baseline_name="direct",
            baseline=poured_direct * 1000,
        ),
        Figure(name=f"memory with {STREAMS} streams", value=occupied, unit="MB"),
        Figure(name="a new connection after the one in use died", value=moved * 1000, unit="ms"),
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    asyncio.run(run(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
