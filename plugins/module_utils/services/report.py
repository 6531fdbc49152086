# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet as JSON and as one page: the different boots, and the differences between them. Pure.

Text that a node reports is not trusted: JSON quotes it, and the page escapes every value.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..evidence.registry import own_evidence, unproven_evidence
from .judge import Finding, Outcome
from .page import BAD, GOOD, UNSURE, Cell, Count, Need, Page, place_of, plain, render_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from .judge import ShownEvent, Trouble

VERSION = 1
_ORDER = (Outcome.REFUSED, Outcome.UNANSWERED, Outcome.VERIFIED)
_TONES = {Outcome.REFUSED: BAD, Outcome.UNANSWERED: UNSURE, Outcome.VERIFIED: GOOD}
_COLUMNS = ("Node", "Role", "Result", "Profile", "Evidence reaches", "Node lock", "Boot", "TPM (endorsement key)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """Machines with the same register values, the node lock's register excepted; ``letter`` names the boot."""

    letter: str
    nodes: tuple[str, ...]
    profiles: tuple[str, ...]
    registers: tuple[tuple[int, str], ...]
    events: tuple[ShownEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a boot differs from the most common one: registers, and events that only one of the two has."""

    boot: Boot
    other: Boot
    registers: tuple[tuple[int, str, str], ...]
    only_here: tuple[ShownEvent, ...]
    only_there: tuple[ShownEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """One verification of one fleet."""

    cluster_id: str
    release: str
    made_at: datetime
    findings: tuple[Finding, ...]
    lock_register: int

    def count(self, outcome: Outcome) -> int:
        """Return how many nodes have ``outcome``."""
        return sum(one.outcome is outcome for one in self.findings)

    def ordered(self) -> tuple[Finding, ...]:
        """Return the findings, refused and unanswered ones first, then by name."""
        return tuple(sorted(self.findings, key=lambda one: (_ORDER.index(one.outcome), one.node)))

    def boots(self) -> tuple[Boot, ...]:
        """Return the boots of all nodes with verified registers, the most common first."""
        groups: dict[tuple[tuple[int, str], ...], list[Finding]] = {}
        for one in sorted(self.findings, key=lambda one: one.node):
            key = tuple((pcr, value) for pcr, value in sorted(one.registers.items()) if pcr != self.lock_register)
            if key:
                groups.setdefault(key, []).append(one)
        ranked = sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[1][0].node))
        return tuple(_boot(place, registers, members) for place, (registers, members) in enumerate(ranked))

    def differences(self) -> tuple[Difference, ...]:
        """Return how each other boot differs from the most common one."""
        boots = self.boots()
        return tuple(_difference(boots[0], other) for other in boots[1:])


def render_json(report: FleetReport) -> bytes:
    """Return the report as JSON, version 1; boots and differences are named by their letters."""
    body = {
        "version": VERSION,
        "cluster_id": report.cluster_id,
        "release": report.release,
        "made_at": report.made_at.isoformat(),
        "evidence": {"judged": own_evidence(), "verified_only": unproven_evidence()},
        "counts": {outcome.value: report.count(outcome) for outcome in Outcome},
        "nodes": [one.to_document() for one in report.ordered()],
        "boots": [_boot_document(one) for one in report.boots()],
        "differences": [
            {
                "boot": one.other.letter,
                "from": one.boot.letter,
                "registers": [{"pcr": pcr, "expected": here, "got": there} for pcr, here, there in one.registers],
                "missing_events": [_event_document(event) for event in one.only_here],
                "additional_events": [_event_document(event) for event in one.only_there],
            }
            for one in report.differences()
        ],
    }
    return json.dumps(body, indent=2).encode() + b"\n"


def render_html(report: FleetReport) -> bytes:
    """Return the report as one HTML page that loads nothing."""
    boots = report.boots()
    boot_of = {node: one.letter for one in boots for node in one.nodes}
    findings = report.ordered()
    page = Page(
        title=f"Verification of cluster {report.cluster_id[:16]}",
        about="each node got a fresh challenge, and its TPM answered for this moment only",
        release=report.release,
        made_at=report.made_at,
        counts=tuple(Count(word=one.value, tone=_TONES[one], count=report.count(one)) for one in _ORDER),
        needs=tuple(_need(one, one.trouble) for one in findings if one.trouble),
        columns=_COLUMNS,
        rows=tuple(_cells(one, boot_of.get(one.node, "")) for one in findings),
    )
    return render_page(
        page,
        "report.html.j2",
        report=report,
        judged=own_evidence(),
        verified_only=unproven_evidence(),
        boots=boots,
        differences=report.differences(),
    )


def _need(finding: Finding, trouble: Trouble) -> Need:
    return Need(
        subject=finding.node,
        what=trouble.reason,
        word=finding.outcome.value,
        lines=trouble.deviations or (trouble.message,),
        hint=trouble.hint,
        command=trouble.command,
        place=place_of(trouble.command),
        tone=_TONES[finding.outcome],
    )


def _cells(finding: Finding, boot: str) -> tuple[Cell, ...]:
    """Return a row's cells in the order of the columns."""
    outcome = finding.outcome
    return (
        Cell(text=finding.node),
        Cell(text=finding.role),
        Cell(
            text=outcome.value,
            tone=_TONES[outcome],
            more=finding.trouble.reason if finding.trouble else "",
            order=str(_ORDER.index(outcome)),
        ),
        Cell(text=finding.profile),
        Cell(text=finding.posture),
        Cell(text=finding.nodelock),
        Cell(text=boot),
        Cell(
            text=f"{finding.ek_sha256[:20]}…" if finding.ek_sha256 else "",
            full=finding.ek_sha256,
            more="certified by its maker" if finding.ek_certified else "",
        ),
    )


def render_table(report: FleetReport) -> list[str]:
    """Return the rows of the terminal's table, a header first."""
    form = "{:<16} {:<13} {:<10} {:<16} {:<8} {:<7} {:<22} {}".format
    rows = [form("NODE", "ROLE", "RESULT", "PROFILE", "POSTURE", "BOOT", "TPM", "REASON").rstrip()]
    boot_of = {node: one.letter for one in report.boots() for node in one.nodes}
    for one in report.ordered():
        cells = (one.role, one.outcome.value, one.profile, one.posture, boot_of.get(one.node, ""), one.ek_sha256[:20])
        reason = one.trouble.reason if one.trouble else ""
        rows.append(plain(form(one.node[:60], *(cell or "-" for cell in cells), reason).rstrip()))
    return rows


def _boot(place: int, registers: tuple[tuple[int, str], ...], members: Sequence[Finding]) -> Boot:
    return Boot(
        letter=_letter(place),
        nodes=tuple(one.node for one in members),
        profiles=tuple(sorted({one.profile for one in members if one.profile})),
        registers=registers,
        events=tuple(event for event in members[0].events if event.pcr in dict(registers)),
    )


def _letter(place: int) -> str:
    """Return A to Z, then A2, B2 and so on."""
    turn, rest = divmod(place, len(string.ascii_uppercase))
    return string.ascii_uppercase[rest] + (str(turn + 1) if turn else "")


def _difference(boot: Boot, other: Boot) -> Difference:
    here, there = dict(boot.registers), dict(other.registers)
    changed = [pcr for pcr in sorted({*here, *there}) if here.get(pcr) != there.get(pcr)]
    ours = [event for event in boot.events if event.pcr in changed]
    theirs = [event for event in other.events if event.pcr in changed]
    return Difference(
        boot=boot,
        other=other,
        registers=tuple((pcr, here.get(pcr, ""), there.get(pcr, "")) for pcr in changed),
        only_here=_without(ours, theirs),
        only_there=_without(theirs, ours),
    )


def _without(events: Iterable[ShownEvent], others: Iterable[ShownEvent]) -> tuple[ShownEvent, ...]:
    """Return the events that ``others`` does not have, or has less often."""
    left = Counter((event.pcr, event.digest) for event in others)
    found = []
    for event in events:
        if left[event.pcr, event.digest]:
            left[event.pcr, event.digest] -= 1
        else:
            found.append(event)
    return tuple(found)


def _boot_document(boot: Boot) -> dict[str, Any]:
    return {
        "letter": boot.letter,
        "nodes": list(boot.nodes),
        "profiles": list(boot.profiles),
        "registers": {str(pcr): value for pcr, value in boot.registers},
    }


def _event_document(event: ShownEvent) -> dict[str, Any]:
    return {"pcr": event.pcr, "digest": event.digest, "text": event.text, "proven": event.proven}
