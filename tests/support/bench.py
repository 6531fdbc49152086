# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of benchmarks with a baseline of the same run: absolute times vary on a shared machine."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.boundaries import commit
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REPORT = "ATTESTED_BENCH_REPORT"
"""Environment variable: file to which `report` appends its results, one JSON object per line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One result; ``baseline`` in the same unit, ``budget``: the limit; 0 if unset."""

    name: str
    value: float
    unit: str
    baseline_name: str = ""
    baseline: float = 0
    budget: float = 0

    @property
    def is_over(self) -> bool:
        """Return whether the value exceeds its budget."""
        return 0 < self.budget < self.value

    def row(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        ratio = f"{self.value / self.baseline:.2f}" if self.baseline else "-"
        beside = f"{_short(self.baseline)} {self.baseline_name}" if self.baseline else "-"
        budget = f"{_short(self.budget)}{' OVER' * self.is_over}" if self.budget else "-"
        return (self.name, f"{_short(self.value)} {self.unit}", budget, ratio, beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The results of one benchmark run in `docs/records`; ``benchmarks``: results by benchmark."""

    date: str
    commit: str
    processors: int
    load: tuple[float, ...]
    speed: tuple[Figure, ...]
    benchmarks: Mapping[str, tuple[Figure, ...]]

    @classmethod
    def of(
        cls, benchmarks: Mapping[str, tuple[Figure, ...]], *, speed: Sequence[Figure], load: Sequence[float]
    ) -> Record:
        """Return the record of a run that ends now, for the present commit."""
        return cls(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=commit(),
            processors=os.cpu_count() or 1,
            load=tuple(round(one, 2) for one in load),
            speed=tuple(speed),
            benchmarks=benchmarks,
        )

    @classmethod
    def read(cls, path: Path) -> Record:
        """Return the record in a file of `write`."""
        body = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            date=body["date"],
            commit=body["commit"],
            processors=body["processors"],
            load=tuple(body["load"]),
            speed=tuple(Figure(**one) for one in body["speed"]),
            benchmarks={name: tuple(Figure(**one) for one in body["benchmarks"][name]) for name in body["benchmarks"]},
        )

    def write(self, directory: Path) -> Path:
        """Write the record as DATE-benchmarks.json, the date with its minute (UTC), and return its path."""
        path = directory / f"{self.date[:16].replace(':', '')}-benchmarks.json"
        body = {"version": 1, "record": "benchmarks", **asdict(self)}
        path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
        return path


def calibration() -> tuple[Figure, ...]:
    """Measure the machine: a Python loop and a SHA-256, medians of nine rounds."""
    block = bytes(1 << 24)
    taken = interleaved(
        {
            "calibration: add the first 2,000,000 numbers": lambda: sum(number for number in range(2_000_000)),
            "calibration: SHA-256 of 16 MiB": lambda: hashlib.sha256(block).digest(),
        },
        rounds=9,
    )
    return tuple(Figure(name=name, value=value, unit="ms") for name, value in taken.items())


@dataclass(slots=True)
class Peak:
    """The peak memory of a process from now on; raises OSError if the kernel does not report it.

    The memory after a run does not show the peak.
    """

    pid: int
    before: int = field(init=False)
    """The memory in bytes at the start."""

    def __post_init__(self) -> None:
        """Reset the peak of the kernel (proc(5): 5 to clear_refs resets VmHWM to the present value)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")
        self.before = self.bytes

    @property
    def bytes(self) -> int:
        """Return the peak in bytes since then."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        (line,) = (one for one in status if one.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024


def require_refusal(what: str, *, expected: tuple[str, ...], got: str) -> None:
    """Print the end of ``what``; raise without all ``expected`` words: the measurement is then invalid."""
    print(f"{what}: {got}", flush=True)
    lacking = [word for word in expected if word not in got]
    if lacking:
        raise RuntimeError(f"{what}: expected a refusal with {', '.join(lacking)}, got {got}")


def _short(value: float) -> str:
    return f"{value:.3g}" if 0 < value < 100 else f"{value:.0f}" if value else ""


def checkout(commit: str, folder: Path, *parts: str) -> Path:
    """Write a commit, or ``parts`` of it, below ``folder`` as a collection; return what Ansible and Python search."""
    place = folder / "ansible_collections" / "attested" / "kubernetes"
    place.mkdir(parents=True)
    words = ("git", "archive", commit, *parts)
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as packed:
        subprocess.run(["tar", "-x", "-C", str(place)], stdin=packed.stdout, check=True)
    return folder


def table(figures: Sequence[Figure]) -> str:
    """Return the results as text in columns."""
    rows = [("what", "measured", "budget", "ratio", "baseline of the same run"), *(one.row() for one in figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def report(*figures: Figure) -> None:
    """Print the results, and pass them to `make bench`."""
    print(table(figures), flush=True)
    hand_on(*figures)


def hand_on(*figures: Figure) -> None:
    """Append the results to the table of `make bench`, if it runs this process."""
    if os.environ.get(REPORT):
        with Path(os.environ[REPORT]).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in figures)


def interleaved(operations: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """Run all operations in turn, ``rounds`` times after one warm-up round; return median milliseconds."""
    taken: dict[str, list[float]] = {name: [] for name in operations}
    for count in range(rounds + 1):
        for name, operation in operations.items():
            begun = time.perf_counter()
            operation()
            if count:
                taken[name].append((time.perf_counter() - begun) * 1000)
    return {name: statistics.median(values) for name, values in taken.items()}
