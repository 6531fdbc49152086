# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzz one parser with atheris, guided by coverage: bytes in, an object or an `AttestedError` out.

Usage: python tests/fuzz/run_target.py NAME --scratch FOLDER [--seconds N] [--keep FOLDER] [--afresh]

libFuzzer ends the process without Python's clean-up, so whoever starts this owns the folder of ``--scratch``, where all
temporary files go, and removes it.

NAME is a file `fuzz_NAME.py` with ``seeds()`` and ``one_input(data)``, and with ``NEVER_REFUSES = True`` where the
parser passes over what it cannot read. An input that raises anything else, takes more than 100 ms of the CPU or 50 MB
more memory than any before it, is a bug: libFuzzer prints it and writes it to the folder of ``--keep``, beside the
inputs that led somewhere new, from which the next run goes on. ``--afresh`` leaves those alone and draws the same
numbers each time. Inputs that once were bugs lie in `corpus/NAME/`, and each start tries them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "ansible_collections"
MAX_CPU_SECONDS = 0.1
MAX_MEBIBYTES = 50
MAX_BYTES = 8192
REPEATS = 3


def watched(one_input: Callable[[bytes], None], refusal: type[Exception]) -> Callable[[bytes], None]:
    """Return the parser with its bounds; what is slow once is timed again, since other work runs beside."""

    def seconds(data: bytes) -> float:
        began = time.thread_time()
        with contextlib.suppress(refusal):
            one_input(data)
        return time.thread_time() - began

    def bounded(data: bytes) -> None:
        before = _peak_mebibytes()
        took = seconds(data)
        if took > MAX_CPU_SECONDS:
            took = min(seconds(data) for _unused in range(REPEATS))
        if took > MAX_CPU_SECONDS:
            raise TimeoutError(
                f"expected at most {MAX_CPU_SECONDS} s of the CPU for {len(data)} bytes, took {took:.3f}"
            )
        grown = _peak_mebibytes() - before
        if grown > MAX_MEBIBYTES:
            raise MemoryError(f"expected at most {MAX_MEBIBYTES} MiB for {len(data)} bytes, took {grown}")

    return bounded


def _peak_mebibytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    """Fuzz the target that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--afresh", action="store_true")
    options = parser.parse_args()
    tempfile.tempdir = str(options.scratch)
    with atheris.instrument_imports(include=[OURS]):
        target = importlib.import_module(f"ansible_collections.attested.kubernetes.tests.fuzz.fuzz_{options.name}")
        errors = importlib.import_module("ansible_collections.attested.kubernetes.plugins.module_utils.errors")
    seeds = options.scratch / "seeds"
    keep = options.keep if options.keep and not options.afresh else options.scratch / "keep"
    for folder in (keep, seeds, options.keep or keep):  # a bug is written to that of --keep, afresh too
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(seed)
    known = Path(__file__).parent / "corpus" / options.name
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={options.seconds}",
            f"-max_len={getattr(target, 'MAX_BYTES', MAX_BYTES)}",
            f"-seed={int(options.afresh)}",  # 0: another one each time
            "-rss_limit_mb=2048",
            f"-artifact_prefix={options.keep or Path.cwd()}/{options.name}-",
            str(keep),
            str(seeds),
            *([str(known)] if known.is_dir() else []),
        ],
        watched(target.one_input, errors.AttestedError),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
