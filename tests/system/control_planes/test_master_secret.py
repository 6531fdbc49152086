# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two control planes and a worker get another master secret, by a command that is killed once in each phase.

Real key services, TPMs and sealed bundles; no state disk, which a container cannot have: the phase of the disks is
`tests/system/vm_bed/test_worker.py`. The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.cut_run import cut_run, phases_left
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_MASTER_SECRET_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

PLANES = ("cp-1", "cp-2")
MACHINES = (*PLANES, "w-1")
WORDS = ("-e", '{"lab_control_planes": 2, "lab_workers": 1}')
ROTATION = "rotate_master_secret"
HELD = "/run/attested/key-service/held.json"
SITE, SHARE = "Record the versions in the site", "send it the versions"


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    made = ("lab", "init", "node")
    with road_through(*made, of="attested-master:127.72.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def words(road: Road) -> tuple[str, ...]:
    """The words that let the version of now go."""
    said = road.play(ROTATION, *WORDS, "--check").output
    found = re.search(r"-e confirm=(1-[0-9a-f]{16})", said)
    assert found is not None, said
    return (*WORDS, "-e", f"confirm={found[1]}")


def test_nothing_is_begun_by_looking(road: Road, words: tuple[str, ...]) -> None:
    assert phases_left(road, ROTATION, *words) == ["make", "share", "lead", "rekey", "retire", "forget"]
    assert phases_left(road, ROTATION, *WORDS) == []


@pytest.mark.parametrize(
    ("phase", "task", "changes", "left"),
    [
        ("make", SITE, 1, ["share", "lead", "retire", "forget"]),
        ("share", SHARE, 1, ["share", "lead", "retire", "forget"]),
        ("lead", SHARE, 2, ["lead", "retire", "forget"]),
        ("retire", SHARE, 2, ["retire", "forget"]),
        ("forget", SITE, 1, []),
    ],
)
def test_killed_in_a_phase_the_same_words_go_on_with_it(
    road: Road, words: tuple[str, ...], phase: str, task: str, changes: int, left: list[str]
) -> None:
    """Of two key services one has taken the phase when the command dies; each run first ends what the last began."""
    cut_run(road, ROTATION, *words, after=task, changes=changes)
    assert phases_left(road, ROTATION, *words) == left, phase


def test_the_last_run_changes_nothing_and_the_turn_is_free(road: Road, words: tuple[str, ...]) -> None:
    run = road.play(ROTATION, *words)
    assert set(run.changes().values()) == {0}
    for name in PLANES:
        held = json.loads(road.inside(name, "cat", HELD))
        assert [one.partition("-")[0] for one in held] == ["2"]


def test_after_a_reboot_of_all_each_gets_its_secrets_under_the_new_version(road: Road) -> None:
    """Also the control planes open their bundles, which were sealed anew to the registers of before their lock."""
    boots = {name: road.boot_id(name) for name in MACHINES}
    for name in MACHINES:
        road.lab.ssh(name, "sudo systemctl reboot")
    now = {name: road.lab.wait_for_boot(name, other_than=boots[name], seconds=300) for name in MACHINES}
    for name in PLANES:
        road.wait_until_ready(name, boot_id=now[name], seconds=600)
    road.wait_until_ready("w-1", boot_id=now["w-1"])
    for name in MACHINES:
        assert_one_lock_event(road, name)
