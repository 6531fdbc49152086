# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was given and what was refused, apart; what is counted; and how the oldest files go."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli.audit import lines_of
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import (
    COUNTED_EVERY_SECONDS,
    KINDS,
    RECORDED_AT_ONCE,
    REFUSALS,
    AuditPlace,
    AuditTrail,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import (
    AuditReport,
    verify_audit,
    verify_refusals,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import Head

NO = {"reason": "CHALLENGE_UNKNOWN", "detail": "expected a challenge"}


class MovedClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Bed:
    """The logs of one control plane, and the TPM that signs their heads."""

    def __init__(self, directory: Path, **place: int) -> None:
        self.directory = directory
        self.place = place
        self.clock = MovedClock()
        self.tpm = SoftTpm()
        self.open()

    def open(self) -> None:
        place = AuditPlace(directory=self.directory, **self.place)
        self.trail = AuditTrail(place, node="cp-1", clock=self.clock, random=SystemRandom())

    def give(self, count: int) -> None:
        for number in range(count):
            self.trail.decided("release", {"node": f"w-{number}"})

    def refuse(self, count: int, source: str = "", **changes: Any) -> None:
        for _unused in range(count):
            self.trail.decided("release", {}, refusal={**NO, **changes}, source=source)

    def sign(self) -> Head | None:
        """Do what the keeper of the heads does."""
        head = self.trail.due()
        if head is not None:
            evidence = issue(self.tpm, self.tpm.ak, qualifying_data=head.digest(), pcrs=(15,))
            self.trail.signed(head, base64.b64encode(evidence.to_bytes()).decode())
        return head

    def files(self, stem: str = "audit") -> list[Path]:
        return AuditPlace(directory=self.directory, stem=stem).existing()

    def lines(self, stem: str = "audit") -> list[bytes]:
        return list(lines_of(str(self.directory), stem=stem))

    def records(self, stem: str = "audit") -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(stem)]

    def verify(self) -> tuple[AuditReport, AuditReport | None]:
        report = verify_audit(self.lines())
        return report, verify_refusals(self.lines(REFUSALS), report)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


# ---- apart, and counted


def test_what_was_given_and_what_was_refused_are_apart(bed: Bed) -> None:
    bed.give(2)
    bed.refuse(3, "w-1")
    given, refused = bed.verify()
    assert refused is not None
    assert (given.events, refused.events) == ({"begun": 1, "release given": 2}, {"begun": 1, "release refused": 3})


def test_a_refusal_of_nobody_is_counted_and_told_once_a_minute(bed: Bed) -> None:
    bed.refuse(500)
    bed.refuse(7, reason="AK_ATTRIBUTES")
    assert [one["event"] for one in bed.records(REFUSALS)] == ["begun"]
    bed.clock.sleep(COUNTED_EVERY_SECONDS)
    bed.trail.sync()
    bed.refuse(1)
    bed.trail.sync()
    told = [(one["of"], one["outcome"], one["reason"], one["count"]) for one in bed.records(REFUSALS)[1:]]
    assert told == [("release", "refused", "AK_ATTRIBUTES", 7), ("release", "refused", "CHALLENGE_UNKNOWN", 500)]
    bed.trail.close()
    _given, refused = bed.verify()
    assert refused is not None
    assert refused.events["release refused, counted"] == 508


def test_a_source_is_recorded_up_to_its_limit_and_then_counted(bed: Bed) -> None:
    bed.refuse(RECORDED_AT_ONCE + 5, "w-1")
    bed.refuse(1, "w-2")
    bed.clock.sleep(COUNTED_EVERY_SECONDS)
    bed.refuse(1, "w-1")
    events = [(one["event"], one.get("source"), one.get("count")) for one in bed.records(REFUSALS)[1:]]
    assert events.count(("release", None, None)) == RECORDED_AT_ONCE + 2
    assert [one for one in events if one[0] == "counted"] == [("counted", "w-1", 5)]


def test_however_many_sources_there_are_a_minute_has_few_records(bed: Bed) -> None:
    for number in range(2 * KINDS):
        bed.refuse(1, f"source {number}")
        bed.refuse(RECORDED_AT_ONCE, f"source {number}")
    bed.refuse(2, "source 0")  # which is counted already
    before = len(bed.lines(REFUSALS))
    bed.trail.write_counts()
    told = bed.records(REFUSALS)[before:]
    assert (len(told), sum(one["count"] for one in told)) == (KINDS + 1, 2 * KINDS + 2)
    assert sum(one["count"] for one in told if "source" not in one) == KINDS
    assert [one["count"] for one in told if one.get("source") == "source 0"] == [3]


def test_what_could_not_be_told_is_told_later(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.refuse(3)
    bed.refuse(4, reason="AK_ATTRIBUTES")

    def full_disk(*_rest: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    assert code_of(bed.trail.write_counts) == "AUDIT_UNWRITABLE"
    monkeypatch.undo()
    bed.refuse(1)
    bed.trail.write_counts()
    bed.trail.write_counts()
    assert [one["count"] for one in bed.records(REFUSALS)[1:]] == [4, 4]


def test_what_was_given_waits_for_no_count(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that fails takes no ticket back that was recorded."""
    bed.refuse(3)
    bed.clock.sleep(COUNTED_EVERY_SECONDS)
    monkeypatch.setattr(bed.trail._refused, "append", lambda *_words, **_fields: 1 // 0)
    bed.give(1)
    with pytest.raises(ZeroDivisionError):
        bed.trail.sync()


# ---- the head of the one signs the other


def test_a_head_says_nothing_of_refusals_that_are_signed_already(bed: Bed) -> None:
    bed.give(100)
    bed.sign()
    bed.give(100)
    bed.sign()
    assert [one["event"] for one in bed.records()].count("refusals") == 1


def test_a_signed_head_covers_what_was_refused(bed: Bed) -> None:
    bed.refuse(5, "w-1")
    assert bed.sign() is None
    bed.give(100)
    assert bed.sign() is not None
    given, refused = bed.verify()
    assert [one.sequence for one in given.refusals] == [6]
    assert refused is not None
    assert given.refusals[0] == refused.last


def test_many_refusals_are_signed_without_anything_given(bed: Bed) -> None:
    for number in range(4):
        bed.refuse(RECORDED_AT_ONCE, f"w-{number}")
    assert bed.sign() is not None
    assert bed.sign() is None
    assert bed.verify()[0].refusals[0].sequence == 4 * RECORDED_AT_ONCE + 1


def refusals_of(bed: Bed, change: Callable[[list[bytes]], list[bytes]]) -> str:
    given = verify_audit(bed.lines())
    return code_of(lambda: verify_refusals(change(bed.lines(REFUSALS)), given))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda log: log[:3], "AUDIT_TRUNCATED", id="the end cut off"),
        pytest.param(lambda log: [], "AUDIT_TRUNCATED", id="all of it gone"),
        pytest.param(lambda log: log[2:], "AUDIT_TRUNCATED", id="the beginning cut off"),
        pytest.param(lambda log: [*log[:2], *log[3:]], "AUDIT_GAP", id="one removed"),
        pytest.param(lambda log: [*log[:5], log[5].replace(b"CHALL", b"EVIDE")], "AUDIT_EDITED", id="the last changed"),
    ],
)
def test_what_was_done_to_the_refusals_is_found(bed: Bed, change: Any, code: str) -> None:
    bed.refuse(5, "w-1")
    bed.give(100)
    bed.sign()
    assert bed.verify()[1] is not None
    assert refusals_of(bed, change) == code


def test_a_control_plane_that_refused_nobody_has_a_whole_log(bed: Bed) -> None:
    """So has one of a release before, which had no such files."""
    bed.give(3)
    for path in bed.files(REFUSALS):
        path.unlink()
    assert bed.verify()[1] is None


# ---- the oldest files


@pytest.fixture
def full(tmp_path: Path) -> Bed:
    """Both logs with more files than stay, which have gone."""
    bed = Bed(tmp_path, file_bytes=3000, files=3)
    for number in range(40):
        bed.give(20)
        bed.refuse(5, f"w-{number}")
        bed.sign()
    bed.give(100)
    bed.sign()
    return bed


def test_files_go_once_that_is_signed(full: Bed) -> None:
    given, refused = full.verify()
    assert refused is not None
    assert (given.first > 1, refused.first > 1) == (True, True)
    assert (len(full.files()) <= 4, len(full.files(REFUSALS)) <= 4) == (True, True)
    for stem, report in (("audit", given), (REFUSALS, refused)):
        rotated = [one for one in full.records(stem) if one["event"] == "rotated"]
        assert rotated[-1]["first"] == report.first


def test_nothing_goes_without_a_signature(tmp_path: Path) -> None:
    bed = Bed(tmp_path, file_bytes=1000, files=2)
    bed.give(50)
    assert bed.trail.due() is not None
    bed.give(50)
    assert len(bed.files()) > 2
    assert bed.verify()[0].first == 1
    bed.sign()
    assert len(bed.files()) < 5
    assert bed.verify()[0].first > 1


def test_a_signature_that_failed_is_asked_for_again_and_told_once(tmp_path: Path) -> None:
    bed = Bed(tmp_path, file_bytes=5000, files=2)
    bed.give(60)
    for _unused in range(5):
        assert bed.trail.due() is not None
    assert [one["event"] for one in bed.records()].count("rotated") == 1


def test_a_restart_between_record_and_deletion_tells_again(tmp_path: Path) -> None:
    bed = Bed(tmp_path, file_bytes=1000, files=2)
    bed.give(20)
    assert bed.trail.due() is not None
    bed.open()
    assert bed.verify()[0].first == 1
    bed.sign()
    assert len(bed.files()) <= 3
    assert bed.verify()[0].first > 1


def test_a_restart_goes_on_with_both_logs_that_have_lost_their_beginning(full: Bed) -> None:
    before = [one.log for one in full.verify() if one is not None]
    full.open()
    full.give(3)
    full.refuse(3, "w-1")
    assert [one.log for one in full.verify() if one is not None] == before


@pytest.mark.parametrize("stem", ["audit", REFUSALS])
def test_a_beginning_that_is_cut_off_is_found(full: Bed, stem: str) -> None:
    assert full.verify()
    full.files(stem)[0].unlink()
    with pytest.raises(AttestedError) as caught:
        full.verify()
    assert caught.value.code == "AUDIT_TRUNCATED"


def test_a_beginning_is_cut_off_where_nothing_ever_went(bed: Bed) -> None:
    bed.give(150)
    bed.sign()
    for start in (1, 40, 149):
        assert code_of(lambda start=start: verify_audit(bed.lines()[start:])) == "AUDIT_TRUNCATED"


def test_a_rotation_counts_for_nothing_before_it_is_signed(full: Bed) -> None:
    """Who cuts the beginning off and writes that this is right has no signature of it."""
    first = full.records()[30]
    full.trail.append("rotated", first=first["sequence"], sha256=first["previous"])
    assert verify_audit(full.lines())
    assert code_of(lambda: verify_audit(full.lines()[30:])) == "AUDIT_TRUNCATED"


@pytest.mark.parametrize("fields", [{"first": 0}, {"first": "7"}, {"first": True}, {}])
def test_a_rotation_of_other_values_is_no_record(bed: Bed, fields: dict[str, Any]) -> None:
    bed.trail.append("rotated", **fields)
    assert code_of(lambda: verify_audit(bed.lines())) == "AUDIT_MALFORMED"
