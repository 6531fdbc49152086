# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many tickets a control plane gives out, and what one costs each process.

Real relay, real key service, real kube-apiserver and etcd, all on this machine together with the load generator
(`light_client`), whose CPU is shown beside theirs. The machines are test attesters, so that no TPM is measured. Each
ticket is a new connection, challenge, bound quote and ticket.
Usage: python tests/bench/ticket_rate.py [--tickets N]
"""

from __future__ import annotations

import argparse
import os
import queue
import resource
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.light_client import LightMachine
from ansible_collections.attested.kubernetes.tests.support.service_bed import GOOD_BOOT, Machine, ServiceBed

if TYPE_CHECKING:
    from collections.abc import Iterator

CONCURRENCY = (1, 8, 32)
MACHINES = 64
CEILINGS = {1: 72.0, 8: 133.0, 32: 155.0}
"""Tickets a second of Constellation's Go services by machines at once, their API limiter switched off (below)."""
AIM = 160.0
"""Tickets a second that the best of the rounds aims at."""
ROLES = Path(__file__).resolve().parents[2] / "roles"
CONSTELLATION = """Constellation's Go services of 2026-01-22, variant dummy, two cores, another run:
  join tickets/s unmodified 2.7 / 2.7 / 2.4, API limiter switched off 72 / 133 / 155
  CPU ms a ticket: join service 4.7-6.1, key service 1.0-1.3, kube-apiserver 4.1-5.9, etcd 1.6-2.7"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measured round: tickets a second, seconds of each ticket, CPU milliseconds a ticket by process."""

    rate: float
    seconds: tuple[float, ...]
    cpu: dict[str, float]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tickets", type=int, default=200, help="tickets a round (default: %(default)s)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"ticket rate: not measured, {reason}")
        return
    with tempfile.TemporaryDirectory(prefix="ticket-rate-") as directory, api_bed(Path(directory)) as api:
        install(api)
        bed = ServiceBed(api)
        try:
            bed.start()
            machines = list(enrolled(bed, Path(directory)))
            before = bed.resident_bytes("join") / 1e6
            measure(bed, machines, concurrency=8, tickets=MACHINES)  # every machine's first ticket, and warm caches
            rounds = {c: measure(bed, machines, concurrency=c, tickets=options.tickets) for c in CONCURRENCY}
            show(rounds, {name: bed.resident_bytes(name) / 1e6 for name in ("join", "key")})
            tell(rounds, before, bed.resident_bytes("join") / 1e6)
        finally:
            bed.stop()


def install(api: ApiBed) -> None:
    """Apply what init applies."""
    objects = sorted((ROLES / "control_plane" / "files" / "crds").glob("*.yml"))
    for path in (*objects, ROLES / "key_service" / "files" / "rbac.yml"):
        api.kubectl("apply", "--server-side", "-f", str(path))
    api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def enrolled(bed: ServiceBed, directory: Path) -> Iterator[Machine]:
    """Make machines and write all identities at once."""
    machines = [Machine(f"bench-{number}", bed, directory / f"m{number}") for number in range(MACHINES)]
    identities = [render_identity(identity_of(one.tpm.ek, one.name)) for one in machines]
    bed.api.apply(render_profile(learned(boots.load(GOOD_BOOT))), *identities)
    for machine in machines:
        machine.store.kubelet_key()
    yield from machines


def measure(bed: ServiceBed, machines: list[Machine], *, concurrency: int, tickets: int) -> Round:
    """Ask for ``tickets``, ``concurrency`` at a time."""
    light = [LightMachine(one) for one in machines]
    before, begun = cpu_seconds(bed), time.monotonic()
    seconds = herd(light, concurrency=concurrency, tickets=tickets)
    passed, after = time.monotonic() - begun, cpu_seconds(bed)
    return Round(
        rate=tickets / passed,
        seconds=tuple(seconds),
        cpu={name: (after[name] - before[name]) * 1000 / tickets for name in after},
    )


def herd(machines: list[LightMachine], *, concurrency: int, tickets: int) -> list[float]:
    """Ask as ``concurrency`` machines do that ask again and again, each machine one at a time."""
    waiting: queue.SimpleQueue[LightMachine] = queue.SimpleQueue()
    for machine in machines:
        waiting.put(machine)

    def one_ticket(_number: int) -> float:
        machine = waiting.get()
        begun = time.monotonic()
        machine.ask()
        took = time.monotonic() - begun
        waiting.put(machine)
        return took

    with ThreadPoolExecutor(concurrency) as workers:
        return list(workers.map(one_ticket, range(tickets)))


def cpu_seconds(bed: ServiceBed) -> dict[str, float]:
    """Return what each process has used of the CPU so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    used = {"join service": bed.cpu_seconds("join"), "key service": bed.cpu_seconds("key")}
    for name, process in bed.api.processes.items():
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        used[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return {**used, "load generator": own.ru_utime + own.ru_stime}


def show(rounds: dict[int, Round], resident: dict[str, float]) -> None:
    """Print one column a concurrency."""
    print(f"{'tickets from a control plane':<32}" + "".join(f"{f'c={c}':>10}" for c in rounds))
    print(f"{'tickets/s':<32}" + "".join(f"{one.rate:>10.1f}" for one in rounds.values()))
    for label, share in (("p50 ms", 50), ("p99 ms", 99)):
        values = [statistics.quantiles(one.seconds, n=100, method="inclusive")[share - 1] for one in rounds.values()]
        print(f"{label:<32}" + "".join(f"{value * 1000:>10.0f}" for value in values))
    for name in next(iter(rounds.values())).cpu:
        print(f"{f'CPU ms a ticket, {name}':<32}" + "".join(f"{one.cpu[name]:>10.1f}" for one in rounds.values()))
    print(f"{'CPU ms a ticket, together':<32}" + "".join(f"{sum(one.cpu.values()):>10.1f}" for one in rounds.values()))
    print(f"resident: join service {resident['join']:.0f} MB, key service {resident['key']:.0f} MB")
    print(CONSTELLATION)


def tell(rounds: dict[int, Round], before: float, after: float) -> None:
    """Report what a ticket took, and the memory of the process before its first and after the last."""
    asked = MACHINES + sum(len(one.seconds) for one in rounds.values())
    memory = Figure(
        name=f"resident join service after {asked} tickets",
        value=after,
        unit="MB",
        budget=120,
        baseline=before,
        baseline_name="MB before the first",
    )
    report(*costs(rounds), memory)


def costs(rounds: dict[int, Round]) -> list[Figure]:
    """Return the milliseconds a ticket of each round and of the best, beside one ticket at a time.

    A rate has no upper bound, so it is told as the time that a ticket may take.
    """
    spent = {c: 1000 / one.rate for c, one in rounds.items()}
    beside: dict[str, Any] = {"unit": "ms", "baseline": spent[CONCURRENCY[0]], "baseline_name": "ms, c=1"}
    each = [Figure(name=f"a ticket, c={c}", value=one, budget=1000 / CEILINGS[c], **beside) for c, one in spent.items()]
    return [*each, Figure(name="a ticket in the best round", value=min(spent.values()), budget=1000 / AIM, **beside)]


if __name__ == "__main__":
    main()
