# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/first-changes.md: the files of each change, and diffs that still apply to them."""

from __future__ import annotations

import re

import pytest
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

_PAGE = (ROOT / "docs" / "first-changes.md").read_text(encoding="utf-8")
CHANGES = re.split(r"^## (?=\d\. )", _PAGE, flags=re.MULTILINE)[1:]
HUNKS = [
    pytest.param(change, hunk, id=hunk.split("\n", 1)[0])
    for change in CHANGES
    for block in re.findall(r"^```diff\n(.*?)^```", change, flags=re.MULTILINE | re.DOTALL)
    for hunk in re.split(r"^@@ ", block, flags=re.MULTILINE)[1:]
]


def files_of(change: str) -> list[str]:
    """Return the files that a change edits by hand."""
    return re.findall(r"^\| `([^`]+/[^`]+)` \|", change, flags=re.MULTILINE)


@pytest.mark.parametrize("change", CHANGES, ids=[change.split("\n", 1)[0] for change in CHANGES])
def test_a_change_edits_few_files(change: str) -> None:
    edited = files_of(change)
    assert len([one for one in edited if one.startswith("plugins/")]) <= 3
    assert [one for one in edited if not (ROOT / one).is_file()] == []


@pytest.mark.parametrize(("change", "hunk"), HUNKS)
def test_a_diff_applies_at_one_place_or_is_applied(change: str, hunk: str) -> None:
    head, *lines = hunk.rstrip("\n").split("\n")
    (path,) = (one for one in files_of(change) if one.endswith(f"/{head.split(',')[0]}"))
    text = f"\n{(ROOT / path).read_text(encoding='utf-8')}"
    before, after = ("\n".join(line[1:] for line in lines if not line.startswith(sign)) for sign in "+-")
    assert 1 in {text.count(f"\n{before}\n"), text.count(f"\n{after}\n")}
