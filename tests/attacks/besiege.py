# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What strangers who hold places of a join service cost its machines: four attacks, each beside quiet.

Silent streams, silent seats, refused calls at full rate and dripping connections (S47), from many addresses of this
machine. Meanwhile each command that is given is run again and again, by which a machine gets a ticket or pushes
evidence.
Usage: python tests/attacks/besiege.py HOST:PORT --join-ca FILE --cluster-id HEX --measure NAME=COMMAND ...
Ends with 1 where a p95 among strangers is more than twice the quiet one.
"""

from __future__ import annotations

import argparse
import ipaddress
import itertools
import shlex
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import parse_endpoint
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.strangers import SOURCES, Kind, Siege, p95

ALLOWED = 2.0


def measured(command: str, times: int, pause: float) -> float:
    """Run ``command`` so many times, each again until it succeeds; return the p95 in milliseconds."""
    seconds = []
    for _unused in range(times):
        time.sleep(pause)  # a machine's own tickets and pushes have a rate, which is not what is measured here
        begun = time.monotonic()
        while subprocess.run(shlex.split(command), check=False, stdout=subprocess.DEVNULL).returncode:
            continue
        seconds.append(time.monotonic() - begun)
    return p95(seconds)


def sources_of(network: str, count: int) -> tuple[str, ...]:
    """Return the first ``count`` addresses of ``network``, which this machine must have."""
    return tuple(str(address) for address in itertools.islice(ipaddress.ip_network(network).hosts(), count))


def main() -> int:
    """Measure quiet, then among each kind of strangers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint", help="HOST:PORT of a join service")
    parser.add_argument("--join-ca", type=Path, required=True, help="the pinned join CA, PEM")
    parser.add_argument("--cluster-id", type=bytes.fromhex, required=True, help="64 hex digits")
    parser.add_argument("--measure", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--times", type=int, default=20, help="runs of each command (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=2.5, help="seconds before each run (default: %(default)s)")
    parser.add_argument("--network", default="127.0.1.0/24", help="strangers' addresses (default: %(default)s)")
    parser.add_argument("--sources", type=int, default=SOURCES, help="how many of them (default: %(default)s)")
    parser.add_argument("--only", nargs="*", type=Kind, choices=tuple(Kind), default=tuple(Kind))
    options = parser.parse_args()
    host, port = parse_endpoint(options.endpoint)
    commands = dict(one.split("=", maxsplit=1) for one in options.measure)
    quiet = {name: measured(command, options.times, options.pause) for name, command in commands.items()}
    figures = []
    for kind in options.only:
        siege = Siege(
            host=host,
            port=port,
            join_ca=options.join_ca.read_bytes(),
            cluster_id=options.cluster_id,
            kind=kind,
            sources=sources_of(options.network, options.sources),
        )
        with siege.going_on():
            for name, command in commands.items():
                among = measured(command, options.times, options.pause)
                figures.append(figure(name, kind, among=among, quiet=quiet[name], sources=options.sources))
    report(*figures)
    return any(one.is_over for one in figures)


def figure(name: str, kind: Kind, *, among: float, quiet: float, sources: int = SOURCES) -> Figure:
    """Return the p95 of ``name`` among strangers beside the quiet one, both in milliseconds."""
    return Figure(
        name=f"p95 of {name} under {kind.value} of {sources} addresses",
        value=among,
        unit="ms",
        budget=ALLOWED * quiet,
        baseline=quiet,
        baseline_name="ms, quiet",
    )


if __name__ == "__main__":
    sys.exit(main())
