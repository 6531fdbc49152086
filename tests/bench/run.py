# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run every benchmark beside this file, one after the other, and close with one table of all their figures.

Nothing fails because it took long: what is over its budget is named in the last line, since a machine that others use
as well says nothing by an exit code. A benchmark that could not run to its end makes it 1, and so does one that found
something wrong. A part of a benchmark that has parts is NAME.PART.
Usage: python tests/bench/run.py [NAME[.PART] ...]      (`make bench`; for example: run.py under_fire.herd)
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

from ansible_collections.attested.kubernetes.tests.support.bench import REPORT, Figure, table

HERE = Path(__file__).resolve().parent


def benchmarks() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem != Path(__file__).stem)


def run(name: str, reported: Path) -> bool:
    """Run one benchmark, its output shown as it comes; return whether it came to its end."""
    print(f"\n=== {name}", flush=True)
    begun = time.monotonic()
    environment = {**os.environ, REPORT: str(reported)}
    benchmark, _dot, part = name.partition(".")
    words = [sys.executable, str(HERE / f"{benchmark}.py"), *(["--only", part] if part else [])]
    done = subprocess.run(words, env=environment, check=False)
    print(f"=== {name}: {time.monotonic() - begun:.0f} s, exit code {done.returncode}", flush=True)
    return done.returncode == 0


def main() -> int:
    """Run what the command line names, all if nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=", ".join(benchmarks()))
    names = parser.parse_args().name or benchmarks()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        reported = Path(directory) / "figures"
        reported.touch()
        failed = [name for name in names if not run(name, reported)]
        lines = reported.read_text(encoding="utf-8").splitlines()
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    figures = [Figure(**json.loads(line)) for line in lines]
    over = [one.name for one in figures if one.is_over]
    print(f"\n{table(figures)}")
    print(f"{os.cpu_count()} processors, load {load}; failed: {', '.join(failed) or 'none'}")
    print(f"over budget: {'; '.join(over) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
