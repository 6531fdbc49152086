# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of `verify` and `status` in a real browser: on a phone, in the dark, sorted, filtered, and hostile.

With the variable ATTESTED_PICTURES=docs/pictures the pictures of the documentation are written again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import visible
from ansible_collections.attested.kubernetes.plugins.module_utils.services import fleet_status, report
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import ShownEvent
from ansible_collections.attested.kubernetes.tests.support import fleet
from ansible_collections.attested.kubernetes.tests.support.browser import Browser, Tab, browser

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ["cp-1", "cp-2", "cp-3", *(f"w-{number}" for number in range(1, 13))]
GONE = {"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: No route to host"}
BAD_PROFILE = (
    "PCR 9 event 41 (EV_EVENT_TAG): expected 'root=LABEL=root ro quiet', got 'root=LABEL=root rw init=/bin/sh'"
)
REFUSED = {
    "reason": "PCR_MISMATCH",
    "count": 3,
    "last_seen": "2026-11-21T11:52:10Z",
    "command": "ansible-playbook attested.kubernetes.policy",
    "message": BAD_PROFILE,
}
POLICY = {
    "generation": 7,
    "profiles": ["r650"],
    "revoked": 0,
    "seen_by": {"cp-1": 7, "cp-2": 7, "cp-3": 7},
    "weaknesses": [],
}


def verified(names: list[str]) -> report.FleetReport:
    """Return the report of a fleet with a node that is refused and one that is silent."""
    good = [fleet.finding(name, role="control-plane" if name.startswith("cp") else "worker") for name in names[:-2]]
    return fleet.report(*good, fleet.refused(names[-2], BAD_PROFILE), fleet.silent(names[-1]))


def stated(names: list[str]) -> fleet_status.FleetStatus:
    """Return the status of such a fleet, with a machine that waits."""
    nodes: dict[str, dict[str, Any]] = {name: fleet.said() for name in names}
    nodes[names[-1]] = GONE
    nodes[names[-2]] = fleet.said(phase="Asking", to_do="Nothing yet: attested-bootstrapper is at work.")
    rows = [fleet.known(name) for name in names[:-2]]
    rows.append(fleet.known(names[-2], registered=False, ready=False, standing="", posture="", refused=REFUSED))
    rows.append(fleet.known(names[-1], ready=False, ready_message="Kubelet stopped posting node status."))
    waits = [{"identity": "ek-9f2c1d5e9f2c1d5e9f2c", "claims": "w-20", "since": "2026-11-21T11:00:00Z"}]
    return fleet.status(nodes, *rows, policy=POLICY, waiting=waits)


def hostile_report() -> report.FleetReport:
    """Return a report of nodes whose names, boots and troubles are hostile texts."""
    nodes = []
    for number, text in enumerate(fleet.HOSTILE):
        events = (ShownEvent(pcr=4, digest="bb" * 32, text=text, proven=True),)
        nodes.append(fleet.refused(f"{number} {text}", text, events=events, role=text, profile=text, boot=f"b{number}"))
    return fleet.report(fleet.finding("w-1"), *nodes)


def hostile_status() -> fleet_status.FleetStatus:
    """Return a status with hostile texts wherever a machine, or who writes objects, can put one."""
    nodes: dict[str, dict[str, Any]] = {"cp-1": fleet.said()}
    rows, waiting = [fleet.known("cp-1")], []
    for number, text in enumerate(fleet.HOSTILE):
        name = f"{number} {text}"
        nodes[name] = fleet.said(needs_person=True, phase=text, to_do=text, reason=text, message=text)
        refused = {**REFUSED, "message": text, "command": text}
        rows.append(fleet.known(name, role=text, version=text, ready=False, ready_message=text, refused=refused))
        waiting.append({"identity": text, "claims": text, "since": text})
    policy = {**POLICY, "weaknesses": list(fleet.HOSTILE)}
    return fleet.status(nodes, *rows, policy=policy, waiting=waiting)


PAGES = {
    "verify": report.render_html(verified(NAMES)),
    "status": fleet_status.render_html(stated(NAMES)),
    "hostile verify": report.render_html(hostile_report()),
    "hostile status": fleet_status.render_html(hostile_status()),
}
GOOD = [pytest.param(name, id=name) for name in ("verify", "status")]
HOSTILE = [pytest.param(name, id=name) for name in ("hostile verify", "hostile status")]
SHOWN = "[...document.querySelectorAll('.fleet tbody tr')].filter(one => one.checkVisibility())"
ORDER = f"{SHOWN}.map(one => one.cells[0].innerText)"
GROUND = "getComputedStyle(document.body).backgroundColor"
# of each text that is shown: its colour, and the first ground behind it that is not transparent
COLOURS = """
[...document.querySelectorAll('body *')]
  .filter(one => one.checkVisibility() && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
  .map(one => {
    let behind = one;
    while (behind && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    return [getComputedStyle(one).color, getComputedStyle(behind ?? document.body).backgroundColor];
  })
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


class Opener:
    """Opens a page of a test from a file, as its reader does."""

    def __init__(self, running: Browser, directory: Path) -> None:
        self.running = running
        self.directory = directory
        self.tabs: list[Tab] = []

    def __call__(self, page: bytes, *, width: int = 1280, scripts: bool = True, scheme: str = "light") -> Tab:
        path = self.directory / f"page-{len(self.tabs)}.html"
        path.write_bytes(page)
        tab = self.running.tab(scripts=scripts)
        self.tabs.append(tab)
        tab.size(width, 800, phone=width < 600)
        tab.media(scheme=scheme)
        tab.open(path.as_uri())
        return tab


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Open pages, and close them with the test."""
    opener = Opener(chromium, tmp_path)
    yield opener
    for tab in opener.tabs:
        chromium.close(tab)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_and_nothing_goes_wrong_in_it(opened: Opener, name: str) -> None:
    tab = opened(PAGES[name])
    tab.click(".filter input")
    tab.type("w-1")
    assert tab.requests == [(opened.directory / "page-0.html").as_uri()]
    assert tab.errors == []
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0


def test_a_page_that_asks_for_something_is_seen(opened: Opener) -> None:
    """The same look at a page that names a picture of another machine, and has no policy."""
    tab = opened(b"<!doctype html><img src='http://pictures.example/one.png'><script>throw Error('x')</script>")
    assert tab.requests[1:] == ["http://pictures.example/one.png"]
    assert any("Error: x" in one for one in tab.errors)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    ("place", "strange"),
    [
        pytest.param(b"<footer>", b"<script>document.title = 'taken'</script>", id="a script"),
        pytest.param(b"<footer>", b"<b id=x onclick=\"document.title = 'taken'\">x</b>", id="an event's script"),
        pytest.param(b"<footer>", b"<img src='http://pictures.example/one.png'>", id="a picture"),
        pytest.param(b"<footer>", b"<style>body { display: none }</style>", id="a style"),
        pytest.param(b'"use strict";', b"document.title = 'taken';", id="a change of the page's own script"),
    ],
)
def test_the_browser_refuses_what_the_policy_of_a_page_does_not_name(
    opened: Opener, name: str, place: bytes, strange: bytes
) -> None:
    """Should a text ever get out of its place, it does nothing."""
    assert place in PAGES[name]
    tab = opened(PAGES[name].replace(place, place + strange, 1))
    tab.evaluate("document.querySelector('#x')?.click()")
    assert tab.evaluate("document.title") != "taken"
    assert tab.evaluate("getComputedStyle(document.body).display") == "block"
    assert tab.evaluate("[...document.images].every(one => one.naturalWidth === 0)")
    assert [one for one in tab.errors if "Content Security Policy" in one]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_phone_shows_a_page_without_scrolling_to_the_side(opened: Opener, name: str, scripts: bool) -> None:
    tab = opened(PAGES[name], width=360, scripts=scripts)
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert tab.evaluate("window.innerWidth") == 360
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    beyond = "[...document.querySelectorAll('body *')].filter(one => one.checkVisibility())"
    assert (
        tab.evaluate(f"{beyond}.filter(one => one.getBoundingClientRect().right > 360).map(one => one.outerHTML)") == []
    )
    labels = "[...document.querySelectorAll('.fleet td')].map(one => getComputedStyle(one, '::before').content)"
    columns = tab.evaluate("[...document.querySelectorAll('.fleet th')].map(one => one.innerText.trim())")
    assert tab.evaluate(labels)[: len(columns)] == [
        json.dumps(one)
        for one in tab.evaluate("[...document.querySelectorAll('.fleet th')].map(one => one.textContent)")
    ]


@pytest.mark.parametrize("width", [700, 1000, 1280, 1920])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_scrolls_to_the_side_at_any_width(opened: Opener, name: str, width: int) -> None:
    tab = opened(PAGES[name], width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desk"])
@pytest.mark.parametrize("name", GOOD)
def test_a_click_sorts_up_down_and_back(opened: Opener, name: str, width: int) -> None:
    tab = opened(PAGES[name], width=width)
    first = tab.evaluate(ORDER)
    head = ".fleet th:nth-child(1)"
    states = []
    orders = []
    for _turn in range(3):
        tab.click(f"{head} button")
        states.append(tab.evaluate(f"document.querySelector('{head}').getAttribute('aria-sort')"))
        orders.append(tab.evaluate(ORDER))
    assert states == ["ascending", "descending", None]
    assert orders == [NAMES, NAMES[::-1], first]
    assert first != NAMES


@pytest.mark.parametrize(("key", "code", "text"), [("Enter", 13, "\r"), (" ", 32, " ")], ids=["Enter", "space"])
@pytest.mark.parametrize("name", GOOD)
def test_the_keyboard_sorts(opened: Opener, name: str, key: str, code: int, text: str) -> None:
    """The first stop of the key Tab is the filter, then come the title of the fleet and its columns."""
    tab = opened(PAGES[name])
    at = "document.activeElement.closest('th')?.textContent"
    for _stop in range(40):
        tab.press("Tab", 9)
        if tab.evaluate(at) == "Node":
            break
    assert tab.evaluate(at) == "Node"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.press(key, code, text)
    assert tab.evaluate(ORDER) == NAMES
    assert tab.evaluate("[...document.querySelectorAll('[aria-sort]')].map(one => one.textContent)") == ["Node"]


def test_another_column_takes_the_order_over_and_red_comes_before_green(opened: Opener) -> None:
    """As words, "good" would stand before "needs a person"."""
    tab = opened(PAGES["status"])
    for column in (1, 2):
        tab.click(f".fleet th:nth-child({column}) button")
    assert tab.evaluate(f"{SHOWN}.map(one => one.cells[1].innerText)") == [
        "needs a person", "in progress", *["good"] * (len(NAMES) - 2)
    ]  # fmt: skip
    assert tab.evaluate("[...document.querySelectorAll('[aria-sort]')].map(one => one.textContent)") == ["Status"]


@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desk"])
@pytest.mark.parametrize("name", GOOD)
def test_the_filter_hides_what_has_not_all_its_words(opened: Opener, name: str, width: int) -> None:
    tab = opened(PAGES[name], width=width)
    needs = "[...document.querySelectorAll('[data-group]')].filter(one => one.checkVisibility()).length"
    before = tab.evaluate(needs)
    tab.click(".filter input")
    tab.type("W-1 worker")
    found = ["w-1", "w-10", "w-11", "w-12"]
    assert sorted(set(tab.evaluate(ORDER)) & set(found)) == sorted(tab.evaluate(ORDER))
    assert "w-1" in tab.evaluate(ORDER)
    assert (
        tab.evaluate("document.querySelector('[role=status]').innerText") == f"{len(tab.evaluate(ORDER))} of 15 nodes"
    )
    assert tab.evaluate(needs) == 0
    tab.evaluate("document.querySelector('.filter input').select()")
    tab.press("Delete", 46)
    assert len(tab.evaluate(ORDER)) == len(NAMES)
    assert tab.evaluate(needs) == before > 0


def luminance(colour: str) -> float:
    """Return how bright a colour is, as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", GOOD)
def test_the_dark_is_dark_and_every_text_is_readable(opened: Opener, name: str) -> None:
    """4.5 is what WCAG asks for (AA)."""
    tab = opened(PAGES[name])
    grounds = {}
    for scheme in ("light", "dark"):
        tab.media(scheme=scheme)
        grounds[scheme] = luminance(tab.evaluate(GROUND))
        pairs = {tuple(pair) for pair in tab.evaluate(COLOURS)}
        assert len(pairs) > 5
        assert {pair: contrast(*pair) for pair in pairs if contrast(*pair) < 4.5} == {}
    assert grounds["light"] > 0.9
    assert grounds["dark"] < 0.05


@pytest.mark.parametrize("name", GOOD)
def test_a_page_is_printed_light_and_without_what_is_clicked(opened: Opener, name: str) -> None:
    tab = opened(PAGES[name], scheme="dark")
    tab.media(scheme="dark", kind="print")
    assert luminance(tab.evaluate(GROUND)) > 0.9
    assert not tab.evaluate("document.querySelector('.filter').checkVisibility()")
    assert tab.evaluate("document.querySelector('.fleet thead').checkVisibility()")
    assert tab.printed().startswith(b"%PDF-")


def test_what_is_folded_is_printed(opened: Opener) -> None:
    tab = opened(PAGES["verify"])
    folded = "[...document.querySelectorAll('details:not([open]) td')].map(one => one.checkVisibility())"
    assert set(tab.evaluate(folded)) == {False}
    tab.media(kind="print")
    assert set(tab.evaluate(folded)) == {True}


@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desk"])
@pytest.mark.parametrize("name", GOOD)
def test_a_page_is_whole_without_scripts(opened: Opener, name: str, width: int) -> None:
    tab = opened(PAGES[name], width=width, scripts=False)
    assert sorted(tab.evaluate(ORDER)) == sorted(NAMES)
    assert tab.evaluate("document.querySelectorAll('button').length") == 0
    assert not tab.evaluate("document.querySelector('.filter').checkVisibility()")
    assert tab.evaluate("document.querySelector('[data-group]').checkVisibility()")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_text(opened: Opener, name: str) -> None:
    tab = opened(PAGES[name])
    tags = tab.evaluate("[...new Set([...document.querySelectorAll('body *')].map(one => one.localName))]")
    assert set(tags) & {"img", "svg", "iframe", "a", "form", "style"} == set()
    assert tab.evaluate("document.scripts.length") == 1
    assert tab.of_kind("Page.javascriptDialogOpening") == []
    names = tab.evaluate("[...document.querySelectorAll('.fleet tbody tr')].map(one => one.cells[0].textContent)")
    expected = [f"{number} {visible(' '.join(text.splitlines()))}" for number, text in enumerate(fleet.HOSTILE)]
    assert sorted(names)[: len(expected)] == sorted(expected)
    assert tab.evaluate("/[\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.textContent)") is False
    tab.click(".fleet th:nth-child(2) button")
    tab.click(".filter input")
    tab.type("<script>")
    assert len(tab.evaluate(ORDER)) == sum("<script>" in text for text in fleet.HOSTILE)
    assert tab.errors == []


def test_a_name_that_is_read_from_the_right_turns_nothing_round_it(opened: Opener) -> None:
    """Without isolation, the number after such a name stands on its left."""
    page = report.render_html(fleet.report(fleet.finding("w-1"), fleet.refused("\u05d0\u05d1", "12 events")))
    tab = opened(page)
    sides = "[one.querySelector('b').getBoundingClientRect().right, range.getBoundingClientRect().left]"
    name, number = tab.evaluate(
        "(() => { const one = document.querySelector('[data-group] li'); const range = document.createRange(); "
        "const text = one.querySelector('.code').firstChild; range.setStart(text, 0); range.setEnd(text, 2); "
        f"return {sides}; }})()"
    )
    assert name < number


MANY = [f"node-{number}" for number in range(1, 1001)]


def many_verified() -> report.FleetReport:
    """Return a report of a thousand nodes with four boots, sixty of which need a person."""
    good = [fleet.finding(name, boot=f"a{number % 3}") for number, name in enumerate(MANY[60:])]
    refused = [fleet.refused(name, BAD_PROFILE) for name in MANY[:50]]
    return fleet.report(*good, *refused, *(fleet.silent(name) for name in MANY[50:60]))


def many_stated() -> fleet_status.FleetStatus:
    """Return the status of a thousand nodes, sixty of which are away."""
    nodes = {name: GONE if number < 60 else fleet.said() for number, name in enumerate(MANY)}
    return fleet.status(nodes, *(fleet.known(name, ready=nodes[name] is not GONE) for name in MANY), policy=POLICY)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(report.render_html(many_verified()), id="verify"),
        pytest.param(fleet_status.render_html(many_stated()), id="status"),
    ],
)
def test_a_page_of_a_thousand_nodes_is_sorted_and_filtered(opened: Opener, page: bytes) -> None:
    assert len(page) < 2_000_000
    tab = opened(page)
    tab.click(".fleet th:nth-child(1) button")
    assert tab.evaluate(ORDER) == MANY
    tab.click(".filter input")
    tab.type("node-77")
    assert tab.evaluate(ORDER) == ["node-77", *(f"node-77{digit}" for digit in range(10))]
    tab.evaluate("document.querySelector('.filter input').select()")
    tab.type("node-57")
    shown = "[...document.querySelectorAll('[data-group] li[data-item]')].filter(one => one.checkVisibility())"
    assert set(tab.evaluate(f"{shown}.map(one => one.querySelector('b').innerText)")) == {"node-57"}
    assert tab.evaluate("document.querySelector('[data-group] details')?.open")


@pytest.mark.parametrize(
    ("name", "page", "width", "height", "scheme"),
    [
        ("report-phone.png", "verify", 360, 780, "light"),
        ("report.png", "verify", 1060, 720, "light"),
        ("status-dark.png", "status", 1060, 720, "dark"),
    ],
)
def test_a_picture_of_a_page_is_small(
    opened: Opener, name: str, page: str, width: int, height: int, scheme: str
) -> None:
    tab = opened(PAGES[page], width=width, scheme=scheme)
    tab.size(width, height, phone=width < 600)
    picture = tab.picture()
    assert picture.startswith(b"\x89PNG")
    assert 10_000 < len(picture) < 100_000
    if target := os.environ.get("ATTESTED_PICTURES"):
        write_atomic(Path(target) / name, picture, mode=0o644)
