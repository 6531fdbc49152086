# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's report: which boots there are, what differs, and that nothing foreign gets out of its place."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import own_evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Outcome, ShownEvent
from ansible_collections.attested.kubernetes.plugins.module_utils.services.report import (
    _letter,
    render_html,
    render_json,
    render_table,
)
from ansible_collections.attested.kubernetes.tests.support.fleet import (
    HOSTILE,
    PageReader,
    finding,
    refused,
    report,
    silent,
)

GOOD = report(finding("cp-1", role="control-plane"), finding("w-1"), refused("w-2"), silent("w-3"))


def test_nodes_of_one_boot_stand_together_whatever_their_lock_says():
    boots = GOOD.boots()
    assert [(one.letter, one.nodes, one.profiles) for one in boots] == [
        ("A", ("cp-1", "w-1"), ("r650",)),
        ("B", ("w-2",), ()),
    ]
    assert 15 not in dict(boots[0].registers)


def test_a_boot_differs_by_registers_and_by_events_that_only_one_has():
    (found,) = GOOD.differences()
    assert (found.boot.letter, found.other.letter) == ("A", "B")
    assert found.registers == ((4, "aa" * 32, "bb" * 32),)
    assert [one.text for one in found.only_here] == ["EFI program of aa"]
    assert [one.text for one in found.only_there] == ["EFI program of bb"]


def test_an_event_that_one_boot_has_twice_counts_twice():
    twice = tuple(ShownEvent(pcr=4, digest="dd" * 32, text="loaded") for _unused in range(2))
    once = twice[:1]
    (found,) = report(finding("a", events=once), finding("b", boot="bb", events=twice)).differences()
    assert (found.only_here, found.only_there) == ((), once)


@pytest.mark.parametrize(("place", "letter"), [(0, "A"), (25, "Z"), (26, "A2"), (51, "Z2"), (52, "A3")], ids=str)
def test_there_are_letters_for_any_number_of_boots(place, letter):
    assert _letter(place) == letter


def test_what_needs_a_person_comes_first():
    assert [(one.node, one.outcome) for one in GOOD.ordered()] == [
        ("w-2", Outcome.REFUSED),
        ("w-3", Outcome.UNANSWERED),
        ("cp-1", Outcome.VERIFIED),
        ("w-1", Outcome.VERIFIED),
    ]


def test_the_report_for_programs_says_everything():
    body = json.loads(render_json(GOOD))
    assert (body["version"], body["made_at"]) == (1, "2026-11-21T12:00:00+00:00")
    assert body["counts"] == {"refused": 1, "unanswered": 1, "verified": 2}
    assert [one["node"] for one in body["nodes"]] == ["w-2", "w-3", "cp-1", "w-1"]
    assert body["nodes"][0]["trouble"]["reason"] == "PCR_MISMATCH"
    assert body["differences"][0]["registers"] == [{"pcr": 4, "expected": "aa" * 32, "got": "bb" * 32}]


def test_the_page_shows_fleet_boots_and_differences():
    text = PageReader(render_html(GOOD)).text
    for one in (
        "Fleet",
        "w-2",
        "PCR_MISMATCH",
        "Boot A: 2 nodes, profile r650",
        "What differs",
        "EFI program of bb",
    ):
        assert one in text
    assert text.index("What needs a person") < text.index("Boots")


def test_both_reports_say_how_far_each_kind_of_evidence_was_shown_to_work():
    """Nobody ran the confidential ones on hardware, and who reads of a fleet is told so."""
    judged, verified_only = own_evidence(), "sev-snp, tdx: verification only, not proven on hardware"
    text = PageReader(render_html(GOOD)).text
    assert f"Kind of evidence that every node was judged by: {judged}." in text
    assert f"Kinds that admit no machine: {verified_only}." in text
    assert json.loads(render_json(GOOD))["evidence"] == {"judged": judged, "verified_only": verified_only}


def test_a_fleet_without_trouble_says_nothing_of_trouble():
    text = PageReader(render_html(report(finding("w-1")))).text
    assert "What needs a person" not in text
    assert "What differs" not in text


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_text_wherever_it_stands(name):
    """A name, an event, a message: the page has the same elements with it as without it."""

    def page(text: str) -> PageReader:
        events = (ShownEvent(pcr=4, digest="bb" * 32, text=text, proven=True),)
        hostile = refused(f"x{text}", text, events=events, role=text, profile=text)
        return PageReader(render_html(report(finding("w-1"), hostile)))

    assert page(name).tags == page("harmless").tags
    assert [letter for letter in page(name).text if not letter.isprintable() and letter != "\n"] == []
    body = json.loads(render_json(report(refused(name, name))))
    assert body["nodes"][0]["node"] == name


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_stays_on_its_row(name):
    rows = render_table(report(finding(name), finding("w-9")))
    assert len(rows) == 3
    assert all(row.isprintable() for row in rows)


def test_the_table_tells_reason_and_boot():
    header, first, *_rest = render_table(GOOD)
    assert re.split(" +", header) == ["NODE", "ROLE", "RESULT", "PROFILE", "POSTURE", "BOOT", "TPM", "REASON"]
    assert re.split(" +", first) == ["w-2", "worker", "refused", "-", "-", "B", "9f" * 10, "PCR_MISMATCH"]
