# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log: one record a decision whatever a name holds, and every change of it is found."""

from __future__ import annotations

import base64
import json
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli.audit import lines_of
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import audit_log as module
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import (
    AuditLog,
    AuditPlace,
    Head,
    digest_of,
    render,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import (
    AuditReport,
    heads_of,
    verify_audit,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NASTY = [
    pytest.param('w-1\n{"event":"release","outcome":"given"}', id="a line of its own"),
    pytest.param("\x1b[2J\x1b[31mroot", id="ANSI"),
    pytest.param("x" * 10_000, id="10 kB"),
    pytest.param("\u0430dmin\u202egnp", id="look-alikes and another direction"),
    pytest.param("\ud800 \u2028 \x00 \x85 \r", id="a lone surrogate and every other line end"),
]


class StandingClock:
    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        del seconds


def open_log(directory: Path, **place: int) -> AuditLog:
    made = AuditPlace(directory=directory, **place)
    return AuditLog(made, node="cp-1", clock=StandingClock(), random=SystemRandom())


def lines(directory: Path) -> list[bytes]:
    return list(lines_of(str(directory)))


def sign(tpm: SoftTpm, head: Head) -> str:
    evidence = issue(tpm, tpm.ak, qualifying_data=head.digest(), pcrs=(15,))
    return base64.b64encode(evidence.to_bytes()).decode()


@pytest.fixture
def tpm() -> SoftTpm:
    return SoftTpm()


@pytest.fixture
def full(tmp_path: Path, tpm: SoftTpm) -> list[bytes]:
    """A log of 250 decisions with two signed heads."""
    log = open_log(tmp_path)
    for number in range(250):
        log.decided("release", {"node": f"w-{number}", "ek": "ab" * 32})
        head = log.due()
        if head is not None:
            log.signed(head, sign(tpm, head))
    log.close()
    return lines(tmp_path)


def refused(*arguments: Any, **options: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        verify_audit(*arguments, **options)
    return caught.value.code


@pytest.mark.parametrize("name", NASTY)
def test_a_record_is_one_parsable_line_whatever_bytes_a_name_holds(tmp_path: Path, name: str) -> None:
    log = open_log(tmp_path)
    log.decided("release", {"node": name, "ek": name}, refusal={"reason": "CSR_NAME_MISMATCH", "detail": name})
    log.close()
    (raw,) = (path.read_bytes() for path in AuditPlace(directory=tmp_path).existing())
    assert raw.count(b"\n") == len(raw.splitlines()) == 2
    assert raw.isascii()
    assert not [byte for byte in raw.replace(b"\n", b"") if byte < 0x20]
    record = json.loads(raw.splitlines()[-1])
    assert (record["event"], record["outcome"]) == ("release", "refused")
    assert record["node"][:4000] == name[:4000]
    assert verify_audit(lines(tmp_path)).last.sequence == 2


def test_no_field_of_a_caller_takes_the_place_of_the_chain(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append("release", sequence=7, previous="00", outcome="given")
    log.close()
    assert verify_audit(lines(tmp_path)).last.sequence == 2


def test_a_log_that_nobody_touched_holds(full: list[bytes], tpm: SoftTpm) -> None:
    report = verify_audit(full)
    assert report == AuditReport(
        log=report.log,
        first=1,
        last=Head(report.log, len(full), digest_of(full[-1])),
        heads=2,
        unsigned=len(full) - 200,
        ak_name=tpm.ak.name.hex(),
        events={"begun": 1, "head": 2, "release given": 250},
    )


def edited(record: bytes, **fields: object) -> bytes:
    document = json.loads(record)
    return render({**document, **fields}, sequence=document["sequence"], previous=bytes.fromhex(document["previous"]))


def rechained(records: list[bytes], start: int) -> list[bytes]:
    """Return the records with every digest from ``start`` on made anew, as a careful forger does."""
    made = records[:start]
    for record in records[start:]:
        document = json.loads(record)
        made.append(render(document, sequence=document["sequence"], previous=digest_of(made[-1])))
    return made


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda log: [*log[:40], edited(log[40], node="w-x"), *log[41:]], "AUDIT_EDITED", id="edited"),
        pytest.param(lambda log: [*log[:40], log[40] + b" ", *log[41:]], "AUDIT_EDITED", id="one blank more"),
        pytest.param(lambda log: [*log[:40], *log[41:]], "AUDIT_GAP", id="one record removed"),
        pytest.param(lambda log: [*log[:40], *log[90:]], "AUDIT_GAP", id="many removed"),
        pytest.param(lambda log: [*log[:40], log[41], log[40], *log[42:]], "AUDIT_GAP", id="two exchanged"),
        pytest.param(lambda log: [*log[:41], log[40], *log[41:]], "AUDIT_REORDERED", id="one record twice"),
        pytest.param(lambda log: [*log[100:], *log[:100]], "AUDIT_REORDERED", id="the end before the beginning"),
        pytest.param(lambda log: [*log[:40], b"{}", *log[40:]], "AUDIT_MALFORMED", id="a record without number"),
        pytest.param(lambda log: [*log[:40], b"\xff\x00", *log[40:]], "AUDIT_MALFORMED", id="bytes"),
        pytest.param(lambda log: [*log, b"[" * 60_000], "AUDIT_MALFORMED", id="a deep document"),
        pytest.param(lambda log: [], "AUDIT_MALFORMED", id="nothing at all"),
        pytest.param(lambda log: [edited(log[0], node="cp-2"), *log[1:]], "AUDIT_EDITED", id="the first record"),
        pytest.param(
            lambda log: rechained([*log[:40], edited(log[40], node="w-x"), *log[41:]], 41),
            "AUDIT_HEAD_WRONG",
            id="edited, and the chain made anew",
        ),
        pytest.param(
            lambda log: rechained([edited(one, evidence="") if b'"head"' in one else one for one in log], 1),
            "AUDIT_HEAD_WRONG",
            id="a head without its quote",
        ),
    ],
)
def test_what_was_done_to_a_log_is_found(
    full: list[bytes], change: Callable[[list[bytes]], list[bytes]], code: str
) -> None:
    assert refused(change(full)) == code


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"sequence": 0}, id="number nought"),
        pytest.param({"sequence": -1}, id="a negative number"),
        pytest.param({"sequence": 10**4299}, id="a number of four thousand digits"),
        pytest.param({"event": ["release"]}, id="a list for an event"),
        pytest.param({"node": {"a": 1}}, id="a document in the document"),
        pytest.param({"event": "head", "log": "x", "head": -1, "sha256": "00", "evidence": ""}, id="a head below all"),
        pytest.param({"event": "head", "log": "x", "head": 1 << 64, "sha256": "00", "evidence": ""}, id="one above"),
        pytest.param({"event": "head", "log": "x", "head": float("inf"), "sha256": "00"}, id="a head without end"),
        pytest.param({"event": "head", "log": "x", "head": "1", "sha256": "00"}, id="a head in words"),
    ],
)
def test_a_record_of_other_values_is_no_record(full: list[bytes], fields: dict[str, object]) -> None:
    forged = {"sequence": 3, "previous": digest_of(full[1]).hex(), **fields}
    assert refused([*full[:2], json.dumps(forged).encode()]) == "AUDIT_MALFORMED"
    assert list(heads_of("cp-1", [json.dumps({**forged, "event": "head_of", "node": "cp-1"}).encode()])) == []


def test_a_cut_end_is_found_by_a_head_that_others_hold(full: list[bytes]) -> None:
    head = Head("", 250, digest_of(full[249]))
    assert verify_audit(full, known=[head])
    assert verify_audit(full[:240]).last.sequence == 240  # by itself it cannot show
    assert refused(full[:240], known=[head]) == "AUDIT_TRUNCATED"
    assert refused(full, known=[Head("", 250, bytes(32))]) == "AUDIT_EDITED"


def test_a_head_under_another_key_is_found(tmp_path: Path, tpm: SoftTpm) -> None:
    log = open_log(tmp_path)
    for signer in (tpm, SoftTpm()):
        for _unused in range(100):
            log.append("release")
        head = log.due()
        assert head is not None
        log.signed(head, sign(signer, head))
    assert refused(lines(tmp_path)) == "AUDIT_HEAD_WRONG"
    assert refused(lines(tmp_path)[:110], ak_name="00" * 34) == "AUDIT_HEAD_WRONG"


def test_a_restart_goes_on(tmp_path: Path) -> None:
    open_log(tmp_path).append("release")
    log = open_log(tmp_path)
    log.append("release")
    assert log.head().sequence == 3
    assert verify_audit(lines(tmp_path)).events == {"begun": 1, "release": 2}


def test_half_a_record_of_a_power_cut_is_cut_off_and_told(tmp_path: Path) -> None:
    open_log(tmp_path).append("release")
    (path,) = AuditPlace(directory=tmp_path).existing()
    with path.open("ab") as stream:
        stream.write(b'{"event":"rele')
    open_log(tmp_path)
    report = verify_audit(lines(tmp_path))
    assert report.events == {"begun": 1, "release": 1, "torn": 1}
    assert json.loads(lines(tmp_path)[-1])["bytes"] == 14


def test_the_chain_goes_on_over_files_each_of_which_names_its_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, file_bytes=2000, files=3)
    for number in range(100):
        log.append("release", node=f"w-{number}")
    files = AuditPlace(directory=tmp_path).existing()
    assert len(files) > 3  # nothing goes before that was signed
    report = verify_audit(lines(tmp_path))
    assert (report.first, report.events["release"], report.events["continued"]) == (1, 100, len(files) - 1)
    firsts = [json.loads(path.read_bytes().splitlines()[0]) for path in files]
    assert [one["log"] for one in firsts] == [report.log] * len(files)
    assert files[2].name == f"audit-{firsts[2]['sequence']:012d}.jsonl"


def test_a_file_that_is_gone_from_the_middle_is_a_gap(tmp_path: Path) -> None:
    log = open_log(tmp_path, file_bytes=2000, files=9)
    for _unused in range(60):
        log.append("release")
    AuditPlace(directory=tmp_path).existing()[1].unlink()
    assert refused(lines(tmp_path)) == "AUDIT_GAP"


def test_a_disk_that_takes_nothing_more_is_told(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    os.close(log._file)
    with pytest.raises(AttestedError) as caught:
        log.append("release")
    assert caught.value.code == "AUDIT_UNWRITABLE"
    assert log.head().sequence == 1


def test_a_disk_that_is_full_at_the_turn_of_a_file_ends_the_log_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was closed may have left its number to another one, which a second try would then close."""
    log = open_log(tmp_path, file_bytes=1)

    def full_disk(*_rest: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full_disk)
    with pytest.raises(AttestedError) as caught:
        log.append("release")
    monkeypatch.undo()
    assert caught.value.code == "AUDIT_UNWRITABLE"
    assert os.fstat(log._file).st_ino == AuditPlace(directory=tmp_path).file_from(1).stat().st_ino
    log.append("release")
    assert verify_audit(lines(tmp_path)).last.sequence == 3


def test_an_error_while_a_record_is_made_leaves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next record would have its number, and the whole log read as if somebody had changed it."""
    log = open_log(tmp_path)
    monkeypatch.setattr(module, "digest_of", lambda line: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        log.append("release")
    monkeypatch.undo()
    log.append("release")
    assert verify_audit(lines(tmp_path)).last.sequence == 2


def test_a_last_line_that_is_no_record_is_not_written_after(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    (path,) = AuditPlace(directory=tmp_path).existing()
    path.write_bytes(path.read_bytes() + b"rubbish\n")
    with pytest.raises(AttestedError) as caught:
        open_log(tmp_path)
    assert caught.value.code == "AUDIT_MALFORMED"


def test_many_threads_make_one_chain(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    threads = [
        threading.Thread(target=lambda: [log.append("release") for _unused in range(50)]) for _unused in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify_audit(lines(tmp_path)).last.sequence == 201


def test_heads_that_another_log_holds_are_found_there(tmp_path: Path, full: list[bytes]) -> None:
    log = open_log(tmp_path / "other")
    log.append("head_of", node="cp-1", log="x", head=250, sha256=digest_of(full[249]).hex())
    log.append("head_of", node="cp-9", log="x", head=9, sha256="00" * 32)
    found = list(heads_of("cp-1", [*lines(tmp_path / "other"), b"rubbish"]))
    assert found == [Head("x", 250, digest_of(full[249]))]
