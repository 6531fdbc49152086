# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What strangers, floods, giants and herds cost the machines that want to join.

Real relay, key service, kube-apiserver and etcd, test attesters, everything on this machine. Each figure stands beside
its baseline of the same run.
Usage: python tests/bench/under_fire.py [--only PART ...] [--tickets N]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import DoorkeeperIssuer
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    CHALLENGE,
    ISSUE_JOIN_TICKET,
    call,
    request_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.tests.attacks.besiege import figure
from ansible_collections.attested.kubernetes.tests.bench.ticket_rate import (
    enrolled,
    install,
    measure,
    write_identities,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.api_bed import api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, Peak, report, require_refusal
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.light_client import LightMachine
from ansible_collections.attested.kubernetes.tests.support.service_bed import (
    GOOD_BOOT,
    MANY_CONNECTIONS,
    Machine,
    ServiceBed,
)
from ansible_collections.attested.kubernetes.tests.support.strangers import Kind, Siege, loopback_sources, p95
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

STRANGERS = 500
HERD = 1000
PAUSE_SECONDS = 1.0
IDENTITIES = 2000
IDENTITY = "nodeidentities.attested-kubernetes.dev"
PROFILES = 20
AT_ONCE = 4
BURST_SECONDS = 15.0
LOSS = 0.1
"""What part of the rate a large cluster may cost."""
NOISE_MEGABYTES = 4
"""By how much the memory of a process that does not grow may differ: the allocator gives back in large pieces."""
MEGA = 1e6


def client_hello() -> bytes:
    """Return what a TLS client sends first."""
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    connection.set_connect_state()
    with suppress(SSL.WantReadError):
        connection.do_handshake()
    return connection.bio_read(1 << 16)


HELLO = client_hello()


@dataclass(slots=True)
class Stranger:
    """One connection that goes nowhere: half-open after its hello, or dripping the hello byte by byte."""

    port: int
    number: int
    sent: int = 0
    connection: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        """Connect from one of four addresses."""
        source = (f"127.0.0.{2 + self.number % 4}", 0)
        self.connection = socket.create_connection(("127.0.0.1", self.port), source_address=source)
        self.sent = 5 if self.number % 2 else len(HELLO)
        with suppress(OSError):  # cut off already, to make room for the next
            self.connection.sendall(HELLO[: self.sent])

    def go_on(self) -> None:
        """Drip, or look whether the service has cut us off; then come again."""
        try:
            if self.sent < len(HELLO):
                self.connection.sendall(HELLO[self.sent : self.sent + 1])
                self.sent += 1
            if self.connection.recv(1 << 16, socket.MSG_DONTWAIT) == b"":
                raise ConnectionError
        except BlockingIOError:
            return
        except OSError:
            self.connection.close()
            with suppress(OSError):
                self.__post_init__()


def strangers(pipe: Connection, port: int) -> None:
    """Keep 500 half-open and 500 dripping connections until the pipe says so."""
    all_of_them = [Stranger(port, number) for number in range(2 * STRANGERS)]
    pipe.send("ready")
    while not pipe.poll(0.5):
        for one in all_of_them:
            one.go_on()
    for one in all_of_them:
        one.connection.close()


def fire(bed: ServiceBed, machines: list[Machine], tickets: int) -> None:
    """Compare good joins on a quiet service and among a thousand strangers, with the limits of production.

    Twice in turn; the seconds in which each stranger's address still uses up what it may at once are told apart.
    """
    bed.limit_join()
    quiet: list[float] = []
    first: list[float] = []
    busy: list[float] = []
    for _unused in range(2):
        quiet += asyncio.run(_good(machines, tickets // 2))
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=strangers, args=(theirs, bed.port), daemon=True)
        process.start()
        theirs.close()  # so that its end is noticed here
        ours.recv()
        standing = time.monotonic() + BURST_SECONDS
        first += asyncio.run(_good(machines, tickets // 8))
        time.sleep(max(0.0, standing - time.monotonic()))
        busy += asyncio.run(_good(machines, tickets // 2))
        ours.send("stop")
        process.join()
    bed.limit_join(**MANY_CONNECTIONS)
    among = f"{STRANGERS} half-open and {STRANGERS} dripping"
    beside: dict[str, Any] = {"unit": "ms", "baseline": p95(quiet), "baseline_name": "ms, quiet"}
    report(
        Figure(name=f"p95 of good joins while {among} arrive", value=p95(first), **beside),
        Figure(name=f"p95 of good joins among {among}", value=p95(busy), budget=2 * p95(quiet), **beside),
    )


def besieged(bed: ServiceBed, machines: list[Machine], tickets: int) -> None:
    """Compare tickets and re-attestations on a quiet service and while strangers hold places of it in four ways (S47).

    With the limits of production; the machines are enrolled and have had a ticket, strangers come from 64 addresses.
    """
    bed.limit_join()
    asyncio.run(_good(machines[:AT_ONCE], AT_ONCE))
    for machine in machines[:AT_ONCE]:
        machine.lock()
    asked: dict[str, Callable[[], list[float]]] = {
        "tickets": lambda: asyncio.run(_good(machines[AT_ONCE:], tickets // 2)),
        "re-attestations": lambda: _pushes(machines[:AT_ONCE], tickets // 2),
    }
    for kind in Kind:
        siege = Siege(
            host="127.0.0.1",
            port=bed.port,
            join_ca=bed.bundle.join_ca_certificate,
            cluster_id=bed.bundle.cluster_id,
            kind=kind,
            sources=loopback_sources(),
        )
        quiet: dict[str, list[float]] = {name: [] for name in asked}
        among: dict[str, list[float]] = {name: [] for name in asked}
        for _unused in range(2):  # in turn: what else this machine does changes
            for name, one in asked.items():
                quiet[name] += one()
            with siege.going_on():
                for name, one in asked.items():
                    among[name] += one()
        report(*(figure(name, kind, among=p95(among[name]), quiet=p95(quiet[name])) for name in asked))
    bed.limit_join(**MANY_CONNECTIONS)


def _pushes(machines: list[Machine], count: int) -> list[float]:
    """Push evidence, one machine after the other, again at once where it fails; return the seconds of each."""
    seconds = []
    for number in range(count):
        begun = time.monotonic()
        while True:
            with suppress(AttestedError):
                machines[number % len(machines)].reattest()
                break
        seconds.append(time.monotonic() - begun)
    return seconds


async def _good(machines: list[Machine], tickets: int) -> list[float]:
    """Ask for tickets, four at a time, again at once where it fails; return the seconds of each, failures included."""
    left, seconds = iter(range(tickets)), []

    async def worker(own: list[Machine]) -> None:
        for number in left:
            begun = time.monotonic()
            while not await _asked(own[number % len(own)]):
                failures.append(number)
            seconds.append(time.monotonic() - begun)

    failures: list[int] = []
    await asyncio.gather(*(worker(machines[first::AT_ONCE]) for first in range(AT_ONCE)))
    if failures:
        print(f"{len(failures)} tries of {tickets} had to be repeated")
    return seconds


async def _asked(machine: Machine) -> bool:
    try:
        await request_ticket(machine.bed.endpoint, machine.config(), machine.machine)
    except AttestedError:
        return False
    return True


async def _send(machine: Machine, request: bytes) -> str:
    """Return the code of the refusal, and what was said with it."""
    config = machine.config()
    issuer = DoorkeeperIssuer(machine.machine.attester)
    async with connect(machine.bed.endpoint, pins=config.pins, cluster_id=config.cluster_id, issuer=issuer) as opened:
        with suppress(AttestedError):
            await call(opened, CHALLENGE, b"")  # so that the connection stands before we are busy with the giant
        try:
            await call(opened, ISSUE_JOIN_TICKET, request)
        except AttestedError as error:
            return f"{error.code}: {error.message}"
    return "answered"


def giants(bed: ServiceBed, machines: list[Machine]) -> None:
    """Send a body of 1 GiB and an event log of a million events; each is refused for its size, and memory stays.

    The relay reads nothing more of a refused call, so a machine that still sends may not get the answer. What counts of
    the memory is the highest that a service held meanwhile.
    """
    log = message_class("join.IssueJoinTicketRequest")(event_logs=bytes(50) * 1_000_000)
    bodies = {"a body of 1 GiB": bytes(1 << 30), "an event log of 1,000,000 events": log.SerializeToString()}
    peaks = {name: Peak(bed.processes[name].pid) for name in ("join", "key")}
    for name, body in bodies.items():
        got = asyncio.run(_send(machines[0], body))
        lost = "JOIN_SERVICE_UNAVAILABLE" in got
        require_refusal(name, expected=() if lost else ("JOIN_SERVICE_BUSY", "larger than max"), got=got)
        machines[0].ask()
    report(
        *(
            Figure(
                name=f"memory that the {name} service grew by at most, under giants",
                value=(peak.bytes - peak.before) / MEGA,
                unit="MB",
                budget=20,
                baseline=peak.before / MEGA,
                baseline_name="MB before",
            )
            for name, peak in peaks.items()
        )
    )


def growth(bed: ServiceBed, machines: list[Machine], tickets: int) -> None:
    """Give out many tickets and look at the memory at a quarter and at the end."""
    measure(bed, machines, concurrency=8, tickets=tickets // 4)
    quarter = {name: bed.resident_bytes(name) / MEGA for name in ("join", "key")}
    measure(bed, machines, concurrency=8, tickets=tickets - tickets // 4)
    report(
        *(
            Figure(
                name=f"resident {name} service after {tickets} tickets",
                value=bed.resident_bytes(name) / MEGA,
                unit="MB",
                budget=base + NOISE_MEGABYTES,
                baseline=base,
                baseline_name=f"MB after {tickets // 4}",
            )
            for name, base in quarter.items()
        )
    )


def start_together(bed: ServiceBed) -> None:
    """Let 1,000 machines ask in the same instant, each again after a pause, until each has its ticket.

    Each has an address of its own. The aims: none is lost or served twice, the last has its ticket within 30 s and
    after twice the median, and the join service holds 150 MB at most meanwhile.
    """
    first, *machines = (
        LightMachine.new(f"herd-{number}", bed, source=f"127.1.{number // 250}.{number % 250 + 1}")
        for number in range(HERD + 1)
    )
    write_identities(bed, [render_identity(identity_of(one.tpm.ek, one.name)) for one in (first, *machines)])
    (alone,) = _together([first])
    peak = Peak(bed.processes["join"].pid)
    seconds = _together(machines)
    found = {one["spec"]["nodeName"]: one["status"] for one in bed.api.get(IDENTITY)["items"] if "status" in one}
    issued = [found[machine.name]["tickets"]["issued"] for machine in machines]
    print(f"served {len(issued)} of {HERD}, each {min(issued)} to {max(issued)} times")
    if (min(issued), max(issued)) != (1, 1):
        raise RuntimeError("expected one ticket for each machine")
    report(
        Figure(
            name=f"{HERD} machines in the same instant: the last has its ticket",
            value=max(seconds),
            unit="s",
            budget=30,
            baseline=alone,
            baseline_name="s, one alone",
        ),
        Figure(
            name=f"{HERD} machines in the same instant: the last beside the median",
            value=max(seconds),
            unit="s",
            budget=2 * statistics.median(seconds),
            baseline=statistics.median(seconds),
            baseline_name="s, the median",
        ),
        Figure(
            name=f"memory of the join service at most, under {HERD} machines",
            value=peak.bytes / MEGA,
            unit="MB",
            budget=150,
            baseline=peak.before / MEGA,
            baseline_name="MB before",
        ),
    )


def _together(machines: Sequence[LightMachine]) -> list[float]:
    """Return after how many seconds each of the machines had its ticket."""
    ready = threading.Barrier(len(machines) + 1)
    begun: list[float] = []

    def served(machine: LightMachine) -> float:
        ready.wait()
        while True:
            try:
                machine.ask()
            except (OSError, SSL.Error):
                time.sleep(PAUSE_SECONDS)
            else:
                return time.monotonic() - begun[0]

    with ThreadPoolExecutor(len(machines)) as workers:
        waiting = [workers.submit(served, machine) for machine in machines]
        begun.append(time.monotonic())
        ready.wait()
        return [one.result() for one in waiting]


def scale(bed: ServiceBed, machines: list[Machine], tickets: int) -> None:
    """Compare the rate with 3 profiles and a few identities to that with 20 and 2,000."""
    good = render_profile(learned(boots.load(GOOD_BOOT)))
    _sign(bed, [_other_profile(good, number) for number in range(2)])
    few = [measure(bed, machines, concurrency=8, tickets=tickets // 2).rate for _unused in range(2)]
    _sign(bed, [_other_profile(good, number) for number in range(PROFILES - 1)])
    bed.api.apply(*(_other_identity(number) for number in range(IDENTITIES - len(machines))))
    time.sleep(2)
    many = [measure(bed, machines, concurrency=8, tickets=tickets // 2).rate for _unused in range(2)]
    report(
        Figure(
            name=f"a ticket with {IDENTITIES} identities and {PROFILES} profiles, c=8",
            value=1000 / max(many),
            unit="ms",
            budget=1000 / max(few) / (1 - LOSS),
            baseline=1000 / max(few),
            baseline_name=f"ms with {len(machines)} and 3",
        )
    )


def _sign(bed: ServiceBed, others: list[dict[str, Any]]) -> None:
    """Apply profiles, and the policy that names them: others do not count."""
    bed.api.apply(*others)
    bed.sign(others=others)
    time.sleep(1)


def _other_profile(good: dict[str, Any], number: int) -> dict[str, Any]:
    registers = [
        {**one, "values": [{"sha256": f"{number:064x}", "label": f"other {number}"}]}
        for one in good["spec"]["registers"]
    ]
    return {**good, "metadata": {"name": f"other-{number}"}, "spec": {**good["spec"], "registers": registers}}


def _other_identity(number: int) -> dict[str, Any]:
    ek = f"{number:020d}".replace("0", "a") + f"{number:044x}"
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": f"other-{number}", "role": "worker", "admission": "Approved"},
    }


PARTS = ("besieged", "fire", "giants", "growth", "herd", "scale")


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--tickets", type=int, default=200, help="tickets of a comparison (default: %(default)s)")
    parser.add_argument("--growth", type=int, default=5000, help="tickets of the long run (default: %(default)s)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"under fire: not measured, {reason}")
        return
    multiprocessing.set_start_method("spawn")
    with tempfile.TemporaryDirectory(prefix="under-fire-") as name, api_bed(Path(name), syncs=True) as api:
        install(api)
        bed = ServiceBed(api, real_pace=True)
        try:
            bed.start()
            machines = list(enrolled(bed, Path(name)))
            measure(bed, machines, concurrency=8, tickets=len(machines))
            run = {
                "besieged": lambda: besieged(bed, machines, options.tickets),
                "fire": lambda: fire(bed, machines, options.tickets),
                "giants": lambda: giants(bed, machines),
                "growth": lambda: growth(bed, machines, options.growth),
                "herd": lambda: start_together(bed),
                "scale": lambda: scale(bed, machines, options.tickets),
            }
            for part in options.only:
                run[part]()
        finally:
            bed.stop()


if __name__ == "__main__":
    main()
