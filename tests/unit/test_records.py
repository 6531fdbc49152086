# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a long run leaves behind is counted right, also where it came in parts."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.records import POWER_CUTS, keep_case, recorded

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)


def case(point: str, outcome: str) -> dict[str, Any]:
    return {"point": point, "fault": "kill", "outcome": outcome, "seconds": 1.5}


def kept(directory: Path, *cases: dict[str, Any], commit: str = "a" * 40) -> dict[str, Any]:
    for one in cases:
        path = keep_case(directory, one, commit=commit, now=NOW)
    body: dict[str, Any] = json.loads(path.read_text())
    return body


def test_each_case_is_there_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    assert kept(tmp_path / "records", case("join:LOCK", "failed"))["of"] == 1
    body = kept(tmp_path / "records", case("join:WRITE", "joined"))
    assert (body["joined"], body["of"], body["date"]) == (1, 2, "2026-11-22T03:04:05+00:00")
    assert [one["point"] for one in body["cases"]] == ["join:LOCK", "join:WRITE"]


def test_a_case_that_was_tried_again_counts_once(tmp_path: Path) -> None:
    body = kept(tmp_path, case("join:LOCK", "failed"), case("join:LOCK", "joined"))
    assert (body["joined"], body["of"]) == (1, 1)


def test_the_cases_of_another_commit_are_not_counted(tmp_path: Path) -> None:
    kept(tmp_path, case("join:LOCK", "joined"))
    body = kept(tmp_path, case("join:WRITE", "joined"), commit="b" * 40)
    assert (body["commit"], body["of"]) == ("b" * 40, 1)


@pytest.mark.parametrize(("error", "outcome"), [(None, "joined"), (TimeoutError("late"), "failed")], ids=str)
def test_only_what_came_to_its_end_has_joined(tmp_path: Path, error: Exception | None, outcome: str) -> None:
    with contextlib.suppress(TimeoutError), recorded("join:LOCK", "kill", directory=tmp_path):
        if error:
            raise error
    (path,) = tmp_path.glob("*.json")
    body = json.loads(path.read_text())
    assert (body["joined"], body["of"]) == (int(error is None), 1)
    assert {**body["cases"][0], "seconds": 0.0} == {**case("join:LOCK", outcome), "seconds": 0.0}


def test_the_power_cuts_have_a_record_of_their_own(tmp_path: Path) -> None:
    with recorded("format:OPEN", "power cut", kind=POWER_CUTS, directory=tmp_path):
        pass
    with contextlib.suppress(TimeoutError), recorded("rekey:END", "power cut", kind=POWER_CUTS, directory=tmp_path):
        raise TimeoutError
    (path,) = tmp_path.glob("*-power-cuts.json")
    body = json.loads(path.read_text())
    assert (body["record"], body["continued"], body["of"]) == ("power-cuts", 1, 2)
    assert [one["outcome"] for one in body["cases"]] == ["continued", "failed"]
