# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many tickets a control plane gives out, and what one costs each process: first ones and repeated ones apart.

Real relay, real key service, real kube-apiserver and etcd, which syncs each write, all on this machine together with
the load generator (`light_client`), whose CPU is shown beside theirs. The machines are test attesters, so that no TPM
is measured. Each ticket is a new connection, challenge, bound quote and ticket. A first ticket is that of a machine
that never asked before: a kubelet certificate is signed for it. A repeated one is that of a machine that has one.
`--before` runs this benchmark and that of another commit in turn, and reports the medians.
Usage: python tests/bench/ticket_rate.py [--seconds N] [--machines N] [--at-once N ...] [--before COMMIT [--rounds N]]
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import queue
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import (
    IDENTITIES,
    ApiGateway,
    CredentialFiles,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.bench import REPORT, Figure, checkout, report
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.light_client import LightMachine
from ansible_collections.attested.kubernetes.tests.support.service_bed import GOOD_BOOT, Machine, ServiceBed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

CONCURRENCY = (1, 8, 32)
MACHINES = 64
CEILINGS = {1: 72.0, 8: 133.0, 32: 155.0}
"""Tickets a second of Constellation's Go services by machines at once, their API limiter switched off (below)."""
AIM = 160.0
"""Tickets a second that the best of the rounds with repeated ones aims at."""
WRITERS = 8
SETTLED_SECONDS = 2.0
LOAD = "load generator"
COLLECTION, LIBRARIES = Path("ansible_collections", "attested", "kubernetes"), "libraries"
TITLE, RATE, WIDTH = "tickets from a control plane", "tickets/s", 32
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


Rounds: TypeAlias = "dict[str, Round]"
Cell: TypeAlias = "tuple[str, str]"
"""Row and column of a printed table."""


class Asking(Protocol):
    """A machine that asks for a ticket."""

    def ask(self) -> object:
        """Ask for one and wait for it."""


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin's credential, as files of the bed."""

    directory: Path

    def current(self) -> CredentialFiles:
        """Return the files."""
        return CredentialFiles(self.directory / "admin.crt", self.directory / "admin.key")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round (default: %(default)s)")
    parser.add_argument("--machines", type=int, default=0, help="new machines a round (default: as many as Go serves)")
    parser.add_argument("--at-once", type=int, nargs="*", default=CONCURRENCY, help="machines at once, a round each")
    parser.add_argument("--before", default="", metavar="COMMIT", help="compare with the benchmark of this commit")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each with --before (default: %(default)s)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"ticket rate: not measured, {reason}")
        return
    if options.before:
        report(*compared(options.before, rounds=options.rounds))
        return
    with tempfile.TemporaryDirectory(prefix="ticket-rate-") as directory, api_bed(Path(directory), syncs=True) as api:
        install(api)
        bed = ServiceBed(api, real_pace=True)
        try:
            bed.start()
            machines = list(enrolled(bed, Path(directory)))
            before = bed.resident_bytes("join") / 1e6
            measure(bed, machines, concurrency=8, tickets=MACHINES)  # every machine's first ticket, and warm caches
            rounds = {}
            for c in options.at_once:
                wanted = options.machines or math.ceil(options.seconds * CEILINGS.get(c, AIM))
                rounds[f"first, c={c}"] = first_tickets(bed, f"c{c}", wanted, concurrency=c, seconds=options.seconds)
                repeated = [LightMachine.of(one) for one in machines]
                rounds[f"again, c={c}"] = asked(bed, repeated, concurrency=c, more=until(options.seconds), again=True)
            show(rounds, {name: bed.resident_bytes(name) / 1e6 for name in ("join", "key")})
            tell(rounds, before, bed.resident_bytes("join") / 1e6)
        finally:
            bed.stop()


def install(api: ApiBed) -> None:
    """Apply what init applies."""
    objects = sorted((ROLES / "control_plane" / "files" / "crds").glob("*.yml"))
    for path in (*objects, ROLES / "key_service" / "files" / "rbac.yml"):
        api.kubectl("apply", "--server-side", "-f", str(path))
    api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=900s")


def enrolled(bed: ServiceBed, directory: Path) -> Iterator[Machine]:
    """Make machines and write all identities at once."""
    machines = [Machine(f"bench-{number}", bed, directory / f"m{number}") for number in range(MACHINES)]
    identities = [render_identity(identity_of(one.tpm.ek, one.name)) for one in machines]
    bed.api.apply(render_profile(learned(boots.load(GOOD_BOOT))), *identities)
    for machine in machines:
        machine.store.kubelet_key()
    yield from machines


def first_tickets(bed: ServiceBed, name: str, count: int, *, concurrency: int, seconds: float) -> Round:
    """Enrol ``count`` machines that never asked; measure until each has asked once, or ``seconds`` are over."""
    machines = [LightMachine.new(f"{name}-{number}", bed) for number in range(count)]
    write_identities(bed, [render_identity(identity_of(one.tpm.ek, one.name)) for one in machines])
    return asked(bed, machines, concurrency=concurrency, more=until(seconds), again=False)


def write_identities(bed: ServiceBed, documents: Sequence[Mapping[str, Any]]) -> None:
    """Create identities as the admin, several at a time; each key service hears of all before this returns."""
    files = bed.api.directory
    gateway = ApiGateway(server=bed.api.server, ca_file=files / "ca.crt", credential=Admin(files))
    with ThreadPoolExecutor(WRITERS) as workers:
        list(workers.map(lambda one: gateway.create(IDENTITIES, one), documents))
    time.sleep(SETTLED_SECONDS)


def until(seconds: float) -> Callable[[], bool]:
    """Return what says whether ``seconds`` from now are not over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def measure(bed: ServiceBed, machines: list[Machine], *, concurrency: int, tickets: int) -> Round:
    """Ask for ``tickets``, ``concurrency`` at a time, each machine again and again."""
    left = itertools.count(1)
    light = [LightMachine.of(one) for one in machines]
    return asked(bed, light, concurrency=concurrency, more=lambda: next(left) <= tickets, again=True)


def asked(
    bed: ServiceBed, machines: list[LightMachine], *, concurrency: int, more: Callable[[], bool], again: bool
) -> Round:
    """Ask, ``concurrency`` machines at a time and each one at a time, as long as there are ``more`` tickets to ask for.

    With ``again`` a machine that has its ticket asks for it again after the others; else each asks once.
    """
    before, begun = cpu_seconds(bed), time.monotonic()
    seconds = herd(machines, concurrency=concurrency, more=more, again=again)
    passed, after = time.monotonic() - begun, cpu_seconds(bed)
    return Round(
        rate=len(seconds) / passed,
        seconds=tuple(seconds),
        cpu={name: (after[name] - before[name]) * 1000 / len(seconds) for name in after},
    )


def herd(machines: Sequence[Asking], *, concurrency: int, more: Callable[[], bool], again: bool) -> list[float]:
    """Return the seconds of each ticket."""
    waiting: queue.SimpleQueue[Asking] = queue.SimpleQueue()
    for machine in machines:
        waiting.put(machine)
    seconds: list[float] = []

    def ask_on(_number: int) -> None:
        while more():
            try:
                machine = waiting.get_nowait()
            except queue.Empty:
                return
            begun = time.monotonic()
            machine.ask()
            seconds.append(time.monotonic() - begun)
            if again:
                waiting.put(machine)

    with ThreadPoolExecutor(concurrency) as workers:
        list(workers.map(ask_on, range(concurrency)))
    return seconds


def cpu_seconds(bed: ServiceBed) -> dict[str, float]:
    """Return what each process has used of the CPU so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    used = {"join service": bed.cpu_seconds("join"), "key service": bed.cpu_seconds("key")}
    for name, process in bed.api.processes.items():
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        used[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return {**used, LOAD: own.ru_utime + own.ru_stime}


def show(rounds: Rounds, resident: dict[str, float]) -> None:
    """Print one column a round."""

    def row(label: str, values: Iterable[float], places: int = 1) -> None:
        print(f"{label:<{WIDTH}}" + "".join(f"{value:>13.{places}f}" for value in values))

    print(f"{TITLE:<{WIDTH}}" + "".join(f"{name:>13}" for name in rounds))
    row("tickets asked for", (len(one.seconds) for one in rounds.values()), 0)
    row(RATE, (one.rate for one in rounds.values()))
    for label, share in (("p50 ms", 50), ("p99 ms", 99)):
        values = [statistics.quantiles(one.seconds, n=100, method="inclusive")[share - 1] for one in rounds.values()]
        row(label, (value * 1000 for value in values), 0)
    for name in next(iter(rounds.values())).cpu:
        row(f"CPU ms a ticket, {name}", (one.cpu[name] for one in rounds.values()))
    row("CPU ms a ticket, together", (sum(one.cpu.values()) for one in rounds.values()))
    print(f"resident: join service {resident['join']:.0f} MB, key service {resident['key']:.0f} MB")
    print(CONSTELLATION)


def tell(rounds: Rounds, before: float, after: float) -> None:
    """Report what a ticket took, and the memory of the process before its first and after the last."""
    count = MACHINES + sum(len(one.seconds) for one in rounds.values())
    memory = Figure(
        name=f"resident join service after {count} tickets",
        value=after,
        unit="MB",
        budget=120,
        baseline=before,
        baseline_name="MB before the first",
    )
    report(*costs(rounds), *cpu_costs(rounds), memory)


def costs(rounds: Rounds) -> list[Figure]:
    """Return the milliseconds a ticket of each round and of the best, beside those of the first round.

    A rate has no upper bound, so it is told as the time that a ticket may take.
    """
    spent = {name: 1000 / one.rate for name, one in rounds.items()}
    first = next(iter(spent))
    beside: dict[str, Any] = {"unit": "ms", "baseline": spent[first], "baseline_name": f"ms, {first}"}
    each = [
        Figure(name=f"a ticket, {name}", value=one, budget=1000 / CEILINGS.get(_at_once(name), AIM), **beside)
        for name, one in spent.items()
    ]
    return [*each, Figure(name="a ticket in the best round", value=min(spent.values()), budget=1000 / AIM, **beside)]


def cpu_costs(rounds: Rounds) -> list[Figure]:
    """Return the CPU of a ticket in each round, all processes together, beside what the load generator takes of it."""
    return [
        Figure(
            name=f"CPU of a ticket, {name}",
            value=sum(one.cpu.values()),
            unit="ms",
            baseline=one.cpu[LOAD],
            baseline_name="ms of it by the load generator",
        )
        for name, one in rounds.items()
    ]


def compared(commit: str, *, rounds: int) -> list[Figure]:
    """Run this benchmark and that of ``commit`` in turn; return the medians of the rows of both.

    The other one is used as it is, with the settings of its own etcd: before 29 November 2026 it did not sync.
    """
    rows: dict[bool, list[dict[Cell, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="ticket-rate-") as directory:
        trees = {True: installed(commit, Path(directory)), False: ROLES.parent / ".dev"}
        for number in range(rounds):
            for former, tree in trees.items():
                print(f"=== round {number + 1} of {rounds}, {commit if former else 'this commit'}", flush=True)
                rows[former].append(rows_of(ran(tree)))
    return beside(_medians(rows[False]), _medians(rows[True]), commit=commit)


def beside(after: Mapping[Cell, float], before: Mapping[Cell, float], *, commit: str) -> list[Figure]:
    """Return what both measured; an older table has a column a concurrency, which is that of repeated tickets."""
    columns = {column: column if (RATE, column) in after else f"again, {column}" for _label, column in before}
    return [
        Figure(
            name=f"{'a ticket' if label == RATE else label.replace('CPU ms', 'CPU of')}, {columns[column]}",
            value=_spent(label, after[label, columns[column]]),
            unit="ms",
            baseline=_spent(label, value),
            baseline_name=f"ms, at {commit}",
        )
        for (label, column), value in before.items()
        if label == RATE or label.startswith("CPU ms")
    ]


def installed(commit: str, folder: Path) -> Path:
    """Check a commit out below ``folder``, with the libraries that its services need beside it."""
    checkout(commit, folder)
    folder.chmod(0o755)  # the join service reads it as another user
    words = ("-m", "pip", "install", "--quiet", "--target", str(folder / LIBRARIES))
    subprocess.run([sys.executable, *words, f"{folder / COLLECTION}[controlplane]"], check=True)
    return folder


def ran(tree: Path) -> str:
    """Run the benchmark of the collection below ``tree`` and return what it prints."""
    program = tree / COLLECTION / "tests" / "bench" / Path(__file__).name
    environment = {name: value for name, value in os.environ.items() if name != REPORT}
    environment |= {"PYTHONPATH": os.pathsep.join((str(tree), str(tree / LIBRARIES)))}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    print(done.stdout, end="", flush=True)
    return done.stdout


def rows_of(output: str) -> dict[Cell, float]:
    """Return the numbers of a table of `show` by row and column."""
    _before, _title, table = output.partition(TITLE)
    heading, *lines = table.partition("\nresident:")[0].splitlines()
    columns = re.split(r"\s{2,}", heading.strip())
    return {
        (line[:WIDTH].strip(), column): float(value)
        for line in lines
        for column, value in zip(columns, line[WIDTH:].split(), strict=True)
    }


def _medians(runs: Sequence[Mapping[Cell, float]]) -> dict[Cell, float]:
    return {key: statistics.median(one[key] for one in runs) for key in runs[0]}


def _spent(label: str, value: float) -> float:
    return 1000 / value if label == RATE else value


def _at_once(name: str) -> int:
    return int(name.rpartition("=")[2])


if __name__ == "__main__":
    main()
