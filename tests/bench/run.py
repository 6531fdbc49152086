# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run every benchmark beside this file, one after the other, and close with one table of all their figures.

Nothing fails because it took long: what is over its budget is named in the last line, since a machine that others use
as well says nothing by an exit code. A benchmark that could not run to its end makes it 1, and so does one that found
something wrong. A part of a benchmark that has parts is NAME.PART.
Usage: python tests/bench/run.py [NAME[.PART] ...] [--record DIRECTORY]      (`make bench`; run.py under_fire.herd)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ansible_collections.attested.kubernetes.tests.support.bench import REPORT, Figure, Record, calibration, table

HERE = Path(__file__).resolve().parent


def benchmarks() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem != Path(__file__).stem)


def run(name: str, reported: Path) -> tuple[Figure, ...] | None:
    """Run one benchmark, its output shown as it comes; return its figures, None where it did not come to its end."""
    print(f"\n=== {name}", flush=True)
    begun = time.monotonic()
    reported.write_text("", encoding="utf-8")
    environment = {**os.environ, REPORT: str(reported)}
    benchmark, _dot, part = name.partition(".")
    words = [sys.executable, str(HERE / f"{benchmark}.py"), *(["--only", part] if part else [])]
    done = subprocess.run(words, env=environment, check=False)
    print(f"=== {name}: {time.monotonic() - begun:.0f} s, exit code {done.returncode}", flush=True)
    figures = tuple(Figure(**json.loads(line)) for line in reported.read_text(encoding="utf-8").splitlines())
    return figures if done.returncode == 0 else None


def main() -> int:
    """Run what the command line names, all if nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=", ".join(benchmarks()))
    parser.add_argument(
        "--record", metavar="DIRECTORY", type=Path, help="write the figures there, as DATE-benchmarks.json"
    )
    given = parser.parse_args()
    speed, load = calibration(), os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        found = {name: run(name, Path(directory) / "figures") for name in given.name or benchmarks()}
    whole = {name: figures for name, figures in found.items() if figures is not None}
    figures = [figure for each in whole.values() for figure in each]
    over = [one.name for one in figures if one.is_over]
    print(f"\n{table([*speed, *figures])}")
    print(f"{os.cpu_count()} processors, load before {' '.join(f'{one:.1f}' for one in load)}")
    print(f"failed: {', '.join(name for name in found if name not in whole) or 'none'}")
    print(f"over budget: {'; '.join(over) or 'none'}")
    if given.record and whole:
        print(f"recorded in {Record.of(whole, speed=speed, load=load).write(given.record)}")
    return int(len(whole) < len(found))


if __name__ == "__main__":
    raise SystemExit(main())
