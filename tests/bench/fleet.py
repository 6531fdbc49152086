# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a ticket costs and what the services hold in fleets of several sizes; the smallest is the baseline.

The bed of `ticket_rate`: real services, API server and etcd. Between two rounds the fleet grows by identities of
machines that never ask. In each round 32 machines at once ask for first tickets, then others for repeated ones. The
smallest fleet has one profile, the others have `--profiles`, all in force, whose status the key service has written.
Usage: python tests/bench/fleet.py [--sizes N ...] [--profiles N] [--seconds N]
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue
from ansible_collections.attested.kubernetes.tests.bench.ticket_rate import (
    LOAD,
    MACHINES,
    Round,
    asked,
    enrolled,
    first_tickets,
    install,
    measure,
    until,
    write_identities,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.api_bed import api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.light_client import LightMachine
from ansible_collections.attested.kubernetes.tests.support.service_bed import GOOD_BOOT, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KIND = "measurementprofiles.attested-kubernetes.dev"
SIZES = (0, 1000, 10000)
PROFILES = 200
AT_ONCE = 32
FIRST_A_SECOND = 120
"""How many new machines a round has for each of its seconds."""
MORE_TIME = 1.1
"""What a ticket may take in a larger fleet, as a multiple of its time in the smallest one."""
KEY_SERVICE_MB = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A fleet with its identities and its profiles in force: its rounds, and the memory of the key service in MB."""

    identities: int
    profiles: int
    first: Round
    again: Round
    key_service_mb: float


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="identities, 0: as few as can be (default: %(default)s)"
    )
    parser.add_argument("--profiles", type=int, default=PROFILES, help="profiles in force (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a round (default: %(default)s)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"fleet: not measured, {reason}")
        return
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory, api_bed(Path(directory), syncs=True) as api:
        install(api)
        bed = ServiceBed(api, real_pace=True)
        try:
            bed.start()
            machines = list(enrolled(bed, Path(directory)))
            measure(bed, machines, concurrency=AT_ONCE, tickets=MACHINES)  # the first tickets, and warm caches
            found = list(grown(bed, machines, options))
        finally:
            bed.stop()
    show(found)
    report(*figures(found))


def grown(bed: ServiceBed, machines: list[Machine], options: argparse.Namespace) -> Iterator[Measured]:
    """Let the fleet grow to each size, and measure there."""
    seconds: float = options.seconds
    there, profiles, asking = MACHINES, 1, int(FIRST_A_SECOND * seconds)
    for number, size in enumerate(options.sizes):
        if number == 1:
            add_profiles(bed, options.profiles - 1)
            profiles = options.profiles
        more = max(size - there - asking, 0)
        fill(bed, more)
        first = first_tickets(bed, f"of-{size}", asking, concurrency=AT_ONCE, seconds=seconds)
        there += more + asking
        again = [LightMachine.of(one) for one in machines]
        yield Measured(
            identities=there,
            profiles=profiles,
            first=first,
            again=asked(bed, again, concurrency=AT_ONCE, more=until(seconds), again=True),
            key_service_mb=bed.resident_bytes("key") / 1e6,
        )


def fill(bed: ServiceBed, count: int) -> None:
    """Write the identities of ``count`` machines that do not exist."""
    model = identity_of(LightMachine.new("model", bed).tpm.ek)
    made = [
        replace(model, ek_sha256=secrets.token_hex(32), node_name=f"f-{secrets.token_hex(8)}") for _each in range(count)
    ]
    write_identities(bed, [render_identity(one) for one in made])


def add_profiles(bed: ServiceBed, count: int) -> None:
    """Put ``count`` more profiles in force, and wait for the status of each; none accepts a machine of this bench."""
    model = learned(boots.load(GOOD_BOOT))
    documents = []
    for number in range(count):
        value = AllowedValue(hashlib.sha256(str(number).encode()).digest(), label="other")
        changed = replace(model, name=f"other-{number}", registers={**model.registers, 4: (value,)})
        documents.append(render_profile(changed))
    bed.api.apply(*documents)
    bed.sign(others=documents)
    bed.adopt()
    wait_for(lambda: all("status" in one for one in bed.api.get(KIND)["items"]), every=5)


def show(found: Sequence[Measured]) -> None:
    """Print a row a size."""
    columns = ("identities", "profiles", "first/s", "again/s", "CPU ms", "of it load", "key MB")
    print("".join(f"{name:>12}" for name in columns))
    for one in found:
        cpu = one.again.cpu
        values = (one.first.rate, one.again.rate, sum(cpu.values()), cpu[LOAD], one.key_service_mb)
        print(f"{one.identities:>12,}{one.profiles:>12}" + "".join(f"{value:>12.1f}" for value in values))


def shown(one: Measured) -> str:
    """Return the size of a fleet in words."""
    return f"{one.identities:,} identities, profiles: {one.profiles}"


def figures(found: Sequence[Measured]) -> list[Figure]:
    """Return each size beside the smallest."""
    base = found[0]
    told = []
    for one in found[1:]:
        for name, value, baseline in (
            ("a first ticket", 1000 / one.first.rate, 1000 / base.first.rate),
            ("a repeated ticket", 1000 / one.again.rate, 1000 / base.again.rate),
            ("CPU of a first ticket", sum(one.first.cpu.values()), sum(base.first.cpu.values())),
            ("CPU of a repeated ticket", sum(one.again.cpu.values()), sum(base.again.cpu.values())),
        ):
            told.append(
                Figure(
                    name=f"{name}, {shown(one)}",
                    value=value,
                    unit="ms",
                    budget=baseline * MORE_TIME,
                    baseline=baseline,
                    baseline_name=f"ms, {shown(base)}",
                )
            )
        told.append(
            Figure(
                name=f"resident key service, {shown(one)}",
                value=one.key_service_mb,
                unit="MB",
                budget=KEY_SERVICE_MB,
                baseline=base.key_service_mb,
                baseline_name=f"MB, {shown(base)}",
            )
        )
    return told


if __name__ == "__main__":
    main()
