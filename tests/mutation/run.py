# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mutate the deciding code, and see that a test fails for each mutant.

Usage: python tests/mutation/run.py [--slice N] [--files N] [--without-api-bed] [FILE ...]

A session of pytest collects the tests of a file once and learns which of them enter which function. Then each mutant is
a fork of that session: the changed code takes the place of the function's, and the tests that enter it run until one
fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from ansible_collections.attested.kubernetes.tests.mutation.targets import (
    API_BED,
    MUTANT,
    NUMBERED,
    ROOT,
    SURVIVORS,
    TARGETS,
)

MAX_SURVIVORS_PERCENT = 2.0
_SHOWN = {"survived", "broken"}
PACKAGE = "ansible_collections.attested.kubernetes.tests.mutation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant of a file, by its number: killed, survived, timeout (killed too), broken (ours)."""

    target: str
    number: int
    mutant: str
    line: int
    result: str


def run_target(target: str, *, slice_of: int, seed: str, on_api_bed: bool) -> list[Outcome]:
    """Return the outcome of each mutant of ``target``, or of a choice of them."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", f"{PACKAGE}.forks", "-p", "no:cacheprovider"]
        argv += ["--mutate", target, "--slice", str(slice_of), "--seed", seed, "--report", str(report)]
        environ = {**os.environ, "TMPDIR": scratch}  # a fork ends without clean-up, so what it leaves goes with this
        done = subprocess.run([*argv, *TARGETS[target]], cwd=ROOT, env=environ, check=False)
        if not report.exists():
            raise SystemExit(f"{target}: its tests did not pass unchanged (pytest ended with {done.returncode})")
        found = [Outcome(target=target, **entry) for entry in json.loads(report.read_text())]
    return [_tried_again(one, on_api_bed=on_api_bed) if one.result == "survived" else one for one in found]


def _tried_again(outcome: Outcome, *, on_api_bed: bool) -> Outcome:
    """Try a survivor in interpreters that import it so: others may have copied a constant; then on the API bed."""
    print(f"{outcome.target}:{outcome.line}: lives on, tried again: {outcome.mutant}", flush=True)
    copied = TARGETS[outcome.target] if outcome.mutant.startswith("<module>") else ()
    for tests in (copied, API_BED.get(outcome.target, ()) if on_api_bed else ()):
        if tests and not _passes(outcome, tests):
            return replace(outcome, result="killed")
    return outcome


def _passes(outcome: Outcome, tests: tuple[str, ...]) -> bool:
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", f"{PACKAGE}.imported", "-p", "no:cacheprovider", *tests]
    environ = {**os.environ, MUTANT: f"{outcome.target}#{outcome.number}"}
    return subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, env=environ).returncode == 0


def drawn(targets: list[str], *, count: int, seed: str) -> list[str]:
    """Return ``count`` of the ``targets`` as ``seed`` draws them, all of them where it is 0."""
    ranked = sorted(targets, key=lambda one: hashlib.sha256(f"{seed}{one}".encode()).digest())
    return sorted(ranked[:count]) if count else targets


def judge(outcomes: list[Outcome], listed: dict[str, dict[str, str]], *, sliced: bool) -> list[str]:
    """Return what is wrong: a survivor that no list argues, one in a numbered check, or too many."""
    survivors = [one for one in outcomes if one.result == "survived"]
    wrong = [f"{one.target}:{one.line}: not tried: {one.mutant}" for one in outcomes if one.result == "broken"]
    for one in survivors:
        if one.mutant not in listed.get(one.target, {}):
            wrong.append(f"{one.target}:{one.line}: survived, and not argued in {SURVIVORS.name}: {one.mutant}")
        elif one.target in NUMBERED:
            wrong.append(f"{one.target}:{one.line}: survived in a file of numbered checks: {one.mutant}")
    if not sliced and len(survivors) * 100 > MAX_SURVIVORS_PERCENT * len(outcomes):
        wrong.append(f"{len(survivors)} of {len(outcomes)} survived, more than {MAX_SURVIVORS_PERCENT:g} %")
    return wrong


def main() -> int:
    """Run what the command line asks for; the last line counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="FILE", default=list(TARGETS))
    parser.add_argument("--slice", type=int, default=0, help="at most so many mutants a file, chosen by the commit")
    parser.add_argument("--files", type=int, default=0, help="so many of the files, chosen by the commit")
    parser.add_argument("--without-api-bed", action="store_true", help="try survivors on no API bed")
    options = parser.parse_args()
    seed = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    seed = hashlib.sha256(seed.encode()).hexdigest()
    outcomes: list[Outcome] = []
    for target in drawn(options.targets or list(TARGETS), count=options.files, seed=seed):
        found = run_target(
            target,
            slice_of=options.slice,
            seed=seed,
            on_api_bed=not options.without_api_bed,
        )
        outcomes += found
        counts = {result: sum(one.result == result for one in found) for result in ("killed", "timeout", "survived")}
        for one in found:
            if one.result in _SHOWN:
                print(f"{target}:{one.line}: {one.result}: {one.mutant}")
        print(f"{target}: {len(found)} mutants, " + ", ".join(f"{n} {what}" for what, n in counts.items()), flush=True)
    wrong = judge(outcomes, yaml.safe_load(SURVIVORS.read_text()) or {}, sliced=bool(options.slice or options.files))
    print("\n".join(wrong))
    survived = sum(one.result == "survived" for one in outcomes)
    print(f"{len(outcomes)} mutants, {len(outcomes) - survived} killed, {survived} survived", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
