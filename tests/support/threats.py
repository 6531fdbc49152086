# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attacks that a node-join system must withstand: tested ones with their tests, and owners of the others.

A file ``tests/attacks/test_sNN_*.py`` has one ``THREAT = Threat(...)`` of literals, which is read without running it.
`docs/threat-model.md` shows the table of `table`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.house import ROOT, UTILS

if TYPE_CHECKING:
    from pathlib import Path
    from xml.etree import ElementTree as ET

FOLDER = ROOT / "tests" / "attacks"
ANCHORS = range(1, 43)
"""The attacks that a node-join system must withstand. S44 and later were found here, and have a file each."""

BEDS = {
    "api": "real etcd and kube-apiserver, both services as processes",
    "bytes": "our own code, bytes in",
    "git": "real git repositories, signed by real keys",
    "kernel": "a real kernel with dm-crypt and dm-integrity (User Mode Linux)",
    "sockets": "TLS or ssh over loopback, real peers",
    "swtpm": "real TPMs (swtpm) with recorded boots",
    "tree": "the files that we ship, and what they render",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threat:
    """One tested attack.

    ``case``: where it happened. ``bed``: one of `BEDS`, the cheapest realistic one. ``stops``: pairs of a check, which
    is ``FILE`` below module_utils (or below the root) with `` step N`` if it is numbered, and its reason code ("" if
    there is nothing to refuse).
    """

    id: str
    title: str
    case: str
    bed: str
    stops: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An attack that is not tested: ``why`` is the missing part."""

    id: str
    title: str
    why: str


OPEN: tuple[Row, ...] = ()
"""Attacks that are not tested yet."""

RESIDUAL = "S43 (hardware attacks on TEEs) is not a row: it cannot be tried here and stays a residual risk."


def threats() -> dict[str, tuple[Threat, Path]]:
    """Return the attacks with a file, by id."""
    found: dict[str, tuple[Threat, Path]] = {}
    for path in sorted(FOLDER.glob("test_s[0-9][0-9]_*.py")):
        threat = _threat_of(path)
        if threat.id in found:
            raise ValueError(f"{threat.id}: expected one file, got {found[threat.id][1].name} and {path.name}")
        found[threat.id] = (threat, path)
    return found


def problems() -> list[str]:
    """Return the problems of the whole table."""
    tried = threats()
    wanted = [f"S{number}" for number in ANCHORS] + [one for one in tried if _number(one) > max(ANCHORS) + 1]
    listed = [*tried, *(row.id for row in OPEN)]
    wrong = [f"{one}: expected one row, got {listed.count(one)}" for one in wanted if listed.count(one) != 1]
    wrong += [f"{one}: expected another number (S43 is a residual risk)" for one in listed if one not in wanted]
    for threat, path in tried.values():
        wrong += _problems_of(threat, path)
    return wrong


def untried(suite: ET.Element) -> list[str]:
    """Return the rows that a run of all attacks did not test; ``suite`` is pytest's report of it (JUnit).

    A skipped test has a source that claims the attack, and tests nothing.
    """
    ran: set[str] = set()
    why: dict[str, str] = {}
    for case in suite.iter("testcase"):
        skipped, names = case.find("skipped"), f"{case.get('classname')}.{case.get('name')}".split(".")
        if skipped is None:
            ran.update(names)
        else:
            why |= dict.fromkeys(names, f"skipped: {skipped.get('message')}")
    return [
        f"{one}: expected a test of {path.name} that ran, got none ({why.get(path.stem, 'none was there')})"
        for one, (_threat, path) in threats().items()
        if path.stem not in ran
    ]


def table() -> str:
    """Return the table as Markdown, one row per attack, with the sum above it."""
    tried = threats()
    sums = f"{len(tried)} of {len(tried) + len(OPEN)} are tried here; {len(OPEN)} are open."
    rows = [sums, "", "| # | attack (real case) | bed | what stops it | reason code |", "|---|---|---|---|---|"]
    cells = {one: _cells(threat, path) for one, (threat, path) in tried.items()}
    cells |= {row.id: ("open", f"{row.title} | - | open: {row.why} | -") for row in OPEN}
    rows += [f"| {one} | {cells[one][1]} |" for one in sorted(cells, key=_number)]
    rows += ["", f"Beds: {'; '.join(f'{name}: {what}' for name, what in BEDS.items())}.", RESIDUAL]
    return "\n".join(rows)


def _cells(threat: Threat, path: Path) -> tuple[str, str]:
    title = f"[{threat.title}](../tests/attacks/{path.name})" + (f" ({threat.case})" if threat.case else "")
    checks = "<br>".join(f"`{check}`" for check, _code in threat.stops)
    codes = "<br>".join(f"`{code}`" if code else "-" for _check, code in threat.stops)
    return "tried", f"{title} | {threat.bed} | {checks} | {codes}"


def _number(identifier: str) -> int:
    return int(identifier[1:])


def _threat_of(path: Path) -> Threat:
    for node in ast.parse(path.read_text(encoding="utf-8"), filename=str(path)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "THREAT":
            call = node.value
            if isinstance(call, ast.Call):
                return Threat(**{str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
    raise ValueError(f"{path.name}: expected one THREAT = Threat(...) of literals, found none")


def _problems_of(threat: Threat, path: Path) -> list[str]:
    wrong = []
    if path.name[5:8].upper() != f"S{_number(threat.id):02}":
        wrong.append(f"{path.name}: expected the file's name to begin with its id {threat.id}")
    if threat.bed not in BEDS:
        wrong.append(f"{path.name}: expected a bed of {sorted(BEDS)}, got {threat.bed}")
    text = path.read_text(encoding="utf-8")
    for check, code in threat.stops:
        wrong += [f"{path.name}: {problem}" for problem in (_problem_of_check(check, code),) if problem]
        if code and len(re.findall(f'"{code}(?:: [^"]+)?"', text)) < 2:
            wrong.append(f"{path.name}: expected a test that asserts {code}")
    return wrong


def _problem_of_check(check: str, code: str) -> str:
    name, _step, number = check.partition(" step ")
    path = next((base / name for base in (UTILS, ROOT) if (base / name).is_file()), None)
    if path is None:
        return f"{check}: expected a file that is there"
    steps = _steps(path.read_text(encoding="utf-8"), number) if number else []
    if number and not steps:
        return f"{check}: expected a step of that number in the docstrings of {name}"
    if steps and not any(_names(step, code) for step in steps):
        return f"{check}: expected a step that refuses with {code}"
    return ""


def _steps(text: str, number: str) -> list[str]:
    """Return the steps with that number in the docstrings of ``text``, each until the next one or an empty line."""
    return re.findall(rf"^\s+{number}\. .*?(?=^\s+\d+\. |^\s*$)", text, re.MULTILINE | re.DOTALL)


def _names(step: str, code: str) -> bool:
    """Return whether a step has ``code``, or its family as in ``IDENTITY_...``."""
    families = re.findall(r"([A-Z_]+_)\.\.\.", step)
    return code in step or any(code.startswith(family) for family in families)
