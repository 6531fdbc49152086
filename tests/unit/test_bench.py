# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark says what it measured: the highest memory, a refusal that was one, a rate beside its aim, a record."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.tests.bench.run import main as run_benchmarks
from ansible_collections.attested.kubernetes.tests.bench.state_disk import (
    BOOT,
    BY_HAND,
    FORMAT,
    LUKS_FORMAT,
    LUKS_OPEN,
    OPEN,
    OURS,
    READ,
    THEIRS,
    WRITE,
    figures,
    require_equal,
)
from ansible_collections.attested.kubernetes.tests.bench.ticket_rate import (
    LOAD,
    Round,
    beside,
    costs,
    herd,
    rows_of,
    show,
)
from ansible_collections.attested.kubernetes.tests.support import build_docs
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, Peak, Record, require_refusal

MEGA = 1_000_000
BUSY = ("JOIN_SERVICE_BUSY", "larger than max")

# holds the megabytes that a line on its standard input names, gives them back, and says so
HOLDER = """
import mmap, sys
for line in sys.stdin:
    with mmap.mmap(-1, int(line) * 1_000_000) as held:
        for place in range(0, len(held), 4096):
            held[place] = 1
    print("given back", flush=True)
"""


def test_the_peak_is_what_was_held_meanwhile_and_not_before() -> None:
    """Memory that was given back again counts, but for the few pages that the kernel counts late."""
    words = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if not Path(f"/proc/{process.pid}/clear_refs").exists():
            process.kill()
            pytest.skip("this kernel does not count the peak of a process anew")

        def hold(megabytes: int) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{megabytes}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "given back\n"

        hold(100)
        peak = Peak(process.pid)
        assert peak.before < 60 * MEGA
        hold(40)
        assert 35 * MEGA < peak.bytes - peak.before < 60 * MEGA
        process.kill()


@pytest.mark.parametrize(
    "got",
    [
        pytest.param("answered", id="no refusal"),
        pytest.param("JOIN_SERVICE_BUSY: too many requests", id="the same code for another cause"),
        pytest.param("JOIN_SERVICE_UNAVAILABLE: Received message larger than max", id="another code"),
    ],
)
def test_what_was_not_refused_as_it_should_be_ends_a_benchmark(got: str) -> None:
    with pytest.raises(RuntimeError, match="a body: expected a refusal with"):
        require_refusal("a body", expected=BUSY, got=got)


def test_a_refusal_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    require_refusal("a body", expected=BUSY, got="JOIN_SERVICE_BUSY: got 'Received message larger than max'")
    assert capsys.readouterr().out.startswith("a body: JOIN_SERVICE_BUSY")


def test_too_few_tickets_a_second_are_over_the_budget() -> None:
    """Of a rate alone the table could not say so: a budget is what may not be exceeded."""
    rates = {"first, c=1": 73.0, "again, c=8": 24.0, "first, c=32": 170.0}
    rounds = {name: Round(rate=rate, seconds=(), cpu={}) for name, rate in rates.items()}
    found = {one.name: (one.unit, one.is_over) for one in costs(rounds)}
    assert found == {
        "a ticket, first, c=1": ("ms", False),
        "a ticket, again, c=8": ("ms", True),
        "a ticket, first, c=32": ("ms", False),
        "a ticket in the best round": ("ms", False),
    }
    slower = {name: Round(rate=150.0, seconds=(), cpu={}) for name in rates}
    assert [one.is_over for one in costs(slower)] == [False, False, True, True]


def test_the_printed_table_is_read_again_for_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    first = Round(rate=49.0, seconds=(0.02, 0.02), cpu={"key service": 8.0, LOAD: 3.0})
    again = Round(rate=92.5, seconds=(0.3, 0.3), cpu={"key service": 7.1, LOAD: 2.9})
    show({"first, c=32": first, "again, c=32": again}, {"join": 88.0, "key": 71.0})
    found = rows_of(f"a line before\n{capsys.readouterr().out}")
    assert {column for _row, column in found} == {"first, c=32", "again, c=32"}
    assert (found["tickets/s", "first, c=32"], found["tickets/s", "again, c=32"]) == (49.0, 92.5)
    assert found["CPU ms a ticket, key service", "again, c=32"] == 7.1
    assert found["CPU ms a ticket, together", "first, c=32"] == 11.0
    rates = {one.name: (round(one.value, 1), round(one.baseline, 1)) for one in beside(found, found, commit="c")}
    assert rates["a ticket, first, c=32"] == (20.4, 20.4)
    older = {("tickets/s", "c=32"): 46.25, ("p50 ms", "c=32"): 17.0}
    (figure,) = beside(found, older, commit="c")
    assert (figure.name, figure.value, figure.baseline) == ("a ticket, again, c=32", 1000 / 92.5, 1000 / 46.25)


@dataclass(slots=True)
class Asker:
    """Stands for a machine in `herd`, which only asks."""

    asked: int = 0
    asking: bool = False

    def ask(self) -> None:
        assert not self.asking, "one machine asks twice at the same time"
        self.asking = True
        time.sleep(0.001)
        self.asked += 1
        self.asking = False


def test_each_new_machine_asks_once() -> None:
    machines = [Asker() for _unused in range(20)]
    assert len(herd(machines, concurrency=8, more=lambda: True, again=False)) == 20
    assert {one.asked for one in machines} == {1}


def test_machines_that_ask_again_do_so_in_turn() -> None:
    left, machines = itertools.count(1), [Asker() for _unused in range(4)]
    assert len(herd(machines, concurrency=4, more=lambda: next(left) <= 40, again=True)) == 40
    assert sum(one.asked for one in machines) == 40
    alone, turns = [Asker() for _unused in range(4)], itertools.count(1)
    herd(alone, concurrency=1, more=lambda: next(turns) <= 40, again=True)
    assert {one.asked for one in alone} == {10}


CRYPT, INTEGRITY = "0 8 crypt capi:authenc(hmac(sha256),xts(aes))-plain64", "0 8 integrity DEVICE 32768 32 J 7"


def test_a_disk_with_another_table_than_one_made_by_hand_ends_a_benchmark() -> None:
    require_equal([[CRYPT, INTEGRITY], [CRYPT, INTEGRITY]])
    with pytest.raises(RuntimeError, match="expected the tables of a disk made by hand"):
        require_equal([[CRYPT, INTEGRITY], [CRYPT, f"{INTEGRITY} bitmap_flush_interval:1000"]])


@pytest.mark.parametrize(
    ("changed", "over"),
    [
        pytest.param({}, [], id="as long as cryptsetup"),
        pytest.param({FORMAT: 1050.0, OPEN: 120.0, BOOT: 9000.0}, [], id="at both budgets, and a long boot"),
        pytest.param({FORMAT: 1051.0}, [FORMAT], id="a format over it"),
        pytest.param({OPEN: 121.0}, [OPEN], id="an opening over it"),
        pytest.param({f"{WRITE}, {OURS}": 10.0}, [], id="slow writes, which equal tables judge"),
    ],
)
def test_a_state_disk_has_its_budget_by_cryptsetup_itself(changed: dict[str, float], over: list[str]) -> None:
    speeds = {f"{name}, {whose}": 90.0 for name in (READ, WRITE) for whose in (OURS, THEIRS)}
    alike = {FORMAT: 1000.0, LUKS_FORMAT: 1000.0, OPEN: 100.0, LUKS_OPEN: 100.0, BOOT: 300.0, BY_HAND: 300.0}
    assert [one.name for one in figures({**alike, **speeds, **changed}) if one.is_over] == over


FIGURE = Figure(name="a ticket | c=1", value=25.5, unit="ms", baseline_name="bare", baseline=5.1, budget=20)


def record(date: str, *names: str, value: float = 25.5) -> Record:
    return Record(
        date=date,
        commit="a" * 40,
        processors=2,
        load=(0.5, 1.0, 1.5),
        speed=(Figure(name="calibration: a loop", value=50, unit="ms"),),
        benchmarks={name: (replace(FIGURE, value=value),) for name in names},
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record("2026-11-25T23:51:14+00:00", "join", "quote")
    path = written.write(tmp_path)
    assert path.name == "2026-11-25T2351-benchmarks.json"
    assert Record.read(path) == written


def test_the_page_shows_the_last_record_of_each_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = tmp_path / "docs" / "records"
    records.mkdir(parents=True)
    record("2026-11-25T23:51:14+00:00", "join", "quote").write(records)
    record("2026-11-26T00:10:00+00:00", "join", value=12).write(records)
    monkeypatch.setattr(build_docs, "ROOT", tmp_path)
    page = build_docs.performance()
    first, second = page.index("## join"), page.index("## quote")
    assert "| a ticket \\| c=1 | 12 ms | 20 | 2.35 | 5.1 bare |" in page[first:second]
    assert (
        "2026-11-26, commit `aaaaaaaaaaaa`, 2 processors, load 0.5 before the run. Machine: a loop 50 ms."
        in page[first:second]
    )
    assert "| a ticket \\| c=1 | 25.5 ms | 20 OVER | 5.00 | 5.1 bare |" in page[second:]


def test_a_run_records_the_benchmarks_that_came_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["run.py", "verification", "state_disk.nothing", "--record", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert run_benchmarks() == 1
    (path,) = tmp_path.iterdir()
    kept = Record.read(path)
    assert list(kept.benchmarks) == ["verification"]
    assert all(figure.value > 0 for figure in (*kept.speed, *kept.benchmarks["verification"]))
