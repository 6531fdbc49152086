# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both pages of a fleet have: nothing to load, one script that the policy names, needs by their next step."""

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services import fleet_status, report
from ansible_collections.attested.kubernetes.plugins.module_utils.services.page import Need, grouped, plain
from ansible_collections.attested.kubernetes.tests.support import fleet

PAGES = [
    pytest.param(
        report.render_html(fleet.report(fleet.finding("cp-1"), fleet.refused("w-1"), fleet.silent("w-2"))), id="verify"
    ),
    pytest.param(
        fleet_status.render_html(
            fleet.status({"cp-1": fleet.said(), "w-1": {"unreachable": True, "msg": "gone"}}, fleet.known("cp-1"))
        ),
        id="status",
    ),
]


def source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_nothing(page: bytes) -> None:
    found = fleet.PageReader(page)
    assert {tag for tag, _unused in found.tags} & {"link", "img", "iframe", "object", "embed", "form"} == set()
    assert [attributes for _tag, attributes in found.tags if {"src", "href", "action", "style"} & set(attributes)] == []
    assert [(tag, name) for tag, attributes in found.tags for name in attributes if name.startswith("on")] == []
    assert not any(one in text for text in found.own.values() for one in ("url(", "@import", "fetch", "XMLHttp"))


@pytest.mark.parametrize("page", PAGES)
def test_the_policy_of_a_page_names_its_own_script_and_style_by_their_hashes(page: bytes) -> None:
    found = fleet.PageReader(page)
    assert [tag for tag, _attributes in found.tags].count("script") == 1
    said = next(attributes["content"] for tag, attributes in found.tags if tag == "meta" and "http-equiv" in attributes)
    assert said == (
        f"default-src 'none'; style-src {source(found.own['style'])}; script-src {source(found.own['script'])}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    at = page.index(b"Content-Security-Policy")
    assert all(page.index(one) > at for one in (b"<style", b"<script", b"<title"))


@pytest.mark.parametrize("page", PAGES)
def test_each_cell_of_the_fleet_names_its_column_and_its_role(page: bytes) -> None:
    """A phone shows rows as cards: their cells are not below a header, and are no cells for the browser."""
    tags = fleet.PageReader(page).tags
    columns = [attributes for tag, attributes in tags if tag == "th" and attributes.get("role") == "columnheader"]
    cells = [attributes for tag, attributes in tags if tag == "td" and attributes.get("role") == "cell"]
    assert cells
    assert len(cells) % len(columns) == 0
    assert all(one["data-label"] for one in cells)


def test_needs_with_the_same_next_step_stand_together_where_the_first_stood() -> None:
    one, other, same = (
        Need(subject=name, what=what, word="refused", command="attested status")
        for name, what in (("a", "X"), ("b", "Y"), ("c", "X"))
    )
    assert grouped([one, other, same]) == [[one, same], [other]]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("w-1\n\x1b[31m", r"w-1 \x1b[31m"),
        ("\u202egnp", r"\u202egnp"),
        ("half \ud800", r"half \ud800"),
        (7, 7),
        (None, None),
    ],
    ids=["lines", "direction", "half a letter", "a number", "nothing"],
)
def test_a_text_is_shown_on_one_line_without_what_moves_or_turns(value: object, shown: object) -> None:
    assert plain(value) == shown
