# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzz parsers with atheris, guided by coverage: bytes in, an object or an `AttestedError` out.

Usage: python tests/fuzz/run_target.py NAME [NAME ...] --scratch FOLDER [--seconds N] [--keep FOLDER] [--afresh]

One is fuzzed in this process. Of several each has a child of its own, two at once: what they import is instrumented
once for all of them, which for each alone takes as long as the fuzzing. libFuzzer ends its process without Python's
clean-up, so whoever starts this owns the folder of ``--scratch``, where all temporary files go, and removes it.

NAME is a file `fuzz_NAME.py` with ``seeds()`` and ``one_input(data)``, and with ``NEVER_REFUSES = True`` where the
parser passes over what it cannot read. An input that raises anything else, takes more than 100 ms of the CPU or 50 MB
more memory than any before it, is a bug: libFuzzer prints it and writes it to the folder NAME below that of ``--keep``,
beside the inputs that led somewhere new, from which the next run goes on. ``--afresh`` leaves those alone and draws the
same numbers each time. Inputs that once were bugs lie in `corpus/NAME/`, and each start tries them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

OURS = "ansible_collections"
MAX_CPU_SECONDS = 0.1
MAX_MEBIBYTES = 50
MAX_BYTES = 8192
REPEATS = 3
AT_ONCE = 2


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


def begin(name: str, target: ModuleType, refusal: type[Exception], options: argparse.Namespace) -> None:
    """Fuzz a target; libFuzzer ends the process."""
    scratch = options.scratch / name
    scratch.mkdir()
    tempfile.tempdir = str(scratch)
    found = options.keep / name if options.keep else scratch / "keep"
    seeds, keep = scratch / "seeds", scratch / "keep" if options.afresh else found
    for folder in (keep, seeds, found):  # a bug is written to that of --keep, afresh too
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(seed)
    known = Path(__file__).parent / "corpus" / name
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={options.seconds}",
            f"-max_len={getattr(target, 'MAX_BYTES', MAX_BYTES)}",
            f"-seed={int(options.afresh)}",  # 0: another one each time
            "-rss_limit_mb=2048",
            f"-artifact_prefix={found if options.keep else Path.cwd()}/{name}-",
            str(keep),
            str(seeds),
            *([str(known)] if known.is_dir() else []),
        ],
        watched(target.one_input, refusal),
    )
    atheris.Fuzz()


def begin_beside(name: str, target: ModuleType, refusal: type[Exception], options: argparse.Namespace) -> int:
    """Fuzz a target in a child of this process, which has imported it; return the child's id.

    The child ends as Python does, which lets libFuzzer write the input that was a bug.
    """
    sys.stdout.flush()
    if child := os.fork():
        return child
    log = os.open(options.scratch / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    begin(name, target, refusal, options)
    raise SystemExit(1)


def tell(name: str, code: int, scratch: Path) -> bool:
    """Print how many inputs a target got, and the end of its output where it failed."""
    log = scratch / f"{name}.log"
    said = log.read_text(encoding="utf-8", errors="replace")
    runs = re.findall(r"^Done (\d+) runs", said, re.MULTILINE)
    good = code == 0 and bool(runs)
    print(
        f"fuzz {name:<24} {runs[-1] if runs else 'no'} inputs" + ("" if good else f": FAILED\n{said[-4000:]}"),
        flush=True,
    )
    shutil.rmtree(scratch / name, ignore_errors=True)
    log.unlink()
    return good


def each(targets: dict[str, ModuleType], refusal: type[Exception], options: argparse.Namespace) -> bool:
    """Fuzz all targets, two at once, and return whether all are good."""
    waiting, running, good = list(targets), dict[int, str](), True
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            running[begin_beside(name, targets[name], refusal, options)] = name
        child, status = os.wait()
        good &= tell(running.pop(child), os.waitstatus_to_exitcode(status), options.scratch)
    return good


def main() -> None:
    """Fuzz the targets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--afresh", action="store_true")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=[OURS]):
        targets = {
            name: importlib.import_module(f"ansible_collections.attested.kubernetes.tests.fuzz.fuzz_{name}")
            for name in options.names
        }
        errors = importlib.import_module("ansible_collections.attested.kubernetes.plugins.module_utils.errors")
    if len(targets) == 1:
        begin(*next(iter(targets.items())), errors.AttestedError, options)
    raise SystemExit(0 if each(targets, errors.AttestedError, options) else 1)


if __name__ == "__main__":
    main()
