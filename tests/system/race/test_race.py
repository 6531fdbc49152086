# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Init and join client of one real machine, 20 times: one winner, one lock event, and no trace of the loser.

The machine is a worker of a cluster that runs, so its join client can win; the admin's copy of the site calls it a
control plane, so init can win as well. Until the race begins the machine cannot reach its cluster. Up to and with the
lock both ways are the real ones; the playbook after a won init finds no host, since the cluster exists already.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.boot_lab import (
    CONTROL_PLANE,
    DOOR,
    UNIT,
    WORDS,
    WORKER,
    address_of,
    boot_lab,
    existing,
    is_joined,
    make_fresh,
    state_of,
)
from ansible_collections.attested.kubernetes.tests.support.founding import NOBODY_TO_BUILD, Founding
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.road import assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road

pytestmark = pytest.mark.slow

RACES = int(os.environ.get("ATTESTED_RACES", "20"))
INIT_WITHIN_SECONDS = 4.0
CLUSTER_WITHIN_SECONDS = 1.0
"""An init needs a third of a second to the lock; a join client that asked in vain asks again within seconds."""
DOOR_IS_SHUT = {"CONNECTION_CLOSED", "INIT_BROKEN_OFF", "PEER_UNREACHABLE"}
"""The join client had won, and the init server was gone or going, before the admin was heard: correct, and no race.

What the admin hears then is retryable: the action asks again, and finds nobody."""

TRACES_OF_INIT = ("/var/lib/attested/key-service/*", "/run/attested/key-service/*")
TRACES_OF_JOIN = (
    "/run/attested/tickets/*",
    "/var/lib/attested/node.json",
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/var/lib/kubelet/pki/*",
    "/run/attested/joined",
)


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """A cluster, and a worker of it that an admin may take for a control plane."""
    if found := obstacles():
        pytest.skip(found)
    with boot_lab("attested-race", "127.63.0") as one:
        one.play(str(Path(__file__).parent / "contenders.yml"), *WORDS)
        yield one


def test_races_on_a_real_machine_have_one_winner_each_and_the_loser_leaves_no_trace(
    road: Road, counted: Callable[[str], None]
) -> None:
    founding = Founding.of(road.site, WORKER, endpoint=f"{road.lab.loopback}.21:9000")
    spread, winners, late = random.Random(20), Counter[str](), 0
    while winners.total() < RACES:
        assert late < RACES, "the admin comes too late each time: the race is none"
        wait_at_the_line(road)
        ended, said = start_together(road, founding, spread)
        winner = winner_of(road, ended, said)
        assert_one_lock_event(road, WORKER)
        if ended in DOOR_IS_SHUT:
            late += 1
        else:
            winners[winner] += 1
    counted(f"{winners.total()} races on a real machine: {dict(winners)}, one lock event each; {late} came too late")
    assert set(winners) == {"init", "join"}, "one of the two never won: the race is none"


def wait_at_the_line(road: Road) -> None:
    """A fresh boot of a machine that is nobody's; both contenders run, and neither can go on."""
    make_fresh(road, WORKER)
    assert existing(road, WORKER, *TRACES_OF_INIT, *TRACES_OF_JOIN, "/run/attested/claim.json") == []
    road.inside(WORKER, "ip", "route", "add", "unreachable", f"{address_of(road, CONTROL_PLANE)}/32")
    road.inside(WORKER, "systemctl", "start", UNIT)
    wait_for(lambda: state_of(road, WORKER, DOOR) == "active")
    assert not existing(road, WORKER, "/run/attested/claim.json")


def start_together(road: Road, founding: Founding, spread: random.Random) -> tuple[str, str]:
    """Let the admin come and the cluster appear about the same moment; return how init ended, and what it said."""
    before_init, before_join = spread.uniform(0, INIT_WITHIN_SECONDS), spread.uniform(0, CLUSTER_WITHIN_SECONDS)
    ended: list[tuple[str, str]] = []

    def init() -> None:
        time.sleep(before_init)
        ended.append(founding.run())

    contender = threading.Thread(target=init)
    contender.start()
    time.sleep(before_join)
    road.inside(WORKER, "ip", "route", "del", "unreachable", f"{address_of(road, CONTROL_PLANE)}/32")
    contender.join()
    return ended[0]


def winner_of(road: Road, ended: str, said: str) -> str:
    """Return who has won, by the machine's claim, after everything that must be so then was seen."""
    wait_for(lambda: bool(existing(road, WORKER, "/run/attested/locked")))
    claim = json.loads(road.inside(WORKER, "cat", "/run/attested/claim.json"))
    if claim["contender"] == "init":
        assert ended == NOBODY_TO_BUILD, (ended, said)
        assert len(existing(road, WORKER, *TRACES_OF_INIT)) == len(TRACES_OF_INIT)
        wait_for(lambda: existing(road, WORKER, *TRACES_OF_JOIN) == [])
        assert state_of(road, WORKER, "kubelet.service") == "inactive"
        assert WORKER not in road.kubectl("get", "nodes", "--output=name")
    else:
        assert ended == "RACE_LOST" or ended in DOOR_IS_SHUT, (ended, said)
        wait_for(lambda: is_joined(road, WORKER))
        assert existing(road, WORKER, *TRACES_OF_INIT) == []
        assert WORKER in road.kubectl("get", "nodes", "--output=name")
    return str(claim["contender"])
