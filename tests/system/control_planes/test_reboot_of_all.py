# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A power cut of a whole rack: a control plane and nine workers reboot at once and are Ready again without a person."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_REBOOT_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

NODES = ("cp-1", *(f"w-{number}" for number in range(1, 10)))
WORDS = ("-e", '{"lab_workers": 9}')
SECONDS = 900


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    with road_through("lab", "init", "node", of="attested-reboot:127.75.0", instead=USED_LAB, words=WORDS) as road:
        yield road


def test_ten_nodes_rebooted_at_once_come_back_alone(road: Road, counted: Callable[[str], None]) -> None:
    """`status` fails meanwhile and succeeds afterwards; each machine has locked itself once."""
    boots = {node: road.boot_id(node) for node in NODES}
    began = time.monotonic()
    with ThreadPoolExecutor(len(NODES)) as pool:
        list(pool.map(lambda node: road.lab.ssh(node, "sudo systemctl reboot"), NODES))
    meanwhile = road.finish("status", road.start("status"))
    now = {node: road.lab.wait_for_boot(node, other_than=boots[node], seconds=SECONDS) for node in NODES}
    for node in NODES:
        road.wait_until_ready(node, boot_id=now[node], seconds=SECONDS)
    counted(f"ten nodes Ready {time.monotonic() - began:.0f} s after they were told to reboot")
    assert meanwhile.returncode != 0, meanwhile.output[-3000:]
    for node in NODES:
        assert_one_lock_event(road, node)
    road.play("status")
