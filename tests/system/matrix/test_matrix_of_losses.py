# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One of three control planes is lost just before a step of a worker's join: it joins by the others, quorum stays.

Each of the three once, the first one included, at a step that the commit draws. Then it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.attested_matrix import HOLD
from ansible_collections.attested.kubernetes.tests.support.boot_lab import WORKER
from ansible_collections.attested.kubernetes.tests.support.boundaries import JOIN, commit, drawn
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.joining import assert_a_clean_node, bring_before
from ansible_collections.attested.kubernetes.tests.support.losing import lose
from ansible_collections.attested.kubernetes.tests.support.records import recorded
from ansible_collections.attested.kubernetes.tests.support.striking import PATIENCE_SECONDS, Order, let_go, suffer, tell
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road
    from ansible_collections.attested.kubernetes.tests.system.matrix.conftest import StruckLab

pytestmark = pytest.mark.slow

PLANES = ("cp-1", "cp-2", "cp-3")


@pytest.fixture(scope="module")
def road(struck_lab: StruckLab) -> Iterator[Road]:
    """Three control planes and a worker."""
    with struck_lab("attested-losses", "127.87.0", control_planes=len(PLANES), workers=1, struck=(WORKER,)) as one:
        yield one


@pytest.mark.parametrize("lost", PLANES)
def test_a_worker_joins_while_one_of_three_control_planes_is_lost(road: Road, lost: str) -> None:
    (point,) = drawn(JOIN, count=1, seed=f"{commit()}{lost}")
    order, asked = Order(point=point, fault=HOLD), next(one for one in PLANES if one != lost)
    wait_for(lambda: learners_of(road, asked) == dict.fromkeys(PLANES, False), seconds=PATIENCE_SECONDS)
    with recorded(point, f"lose {lost}"):
        bring_before(road, WORKER, point)
        tell(road, WORKER, order)
        road.lab.ssh(WORKER, "sudo systemctl reboot")
        suffer(road, WORKER, order)
        lose(road, lost)
        let_go(road, WORKER)
        assert_a_clean_node(road, WORKER, asked=asked, seconds=2 * PATIENCE_SECONDS)
        assert road.inside(lost, "pgrep", "--exact", "kube-apiserver", check=False) == ""
        written = f"written-without-{lost}"
        road.kubectl("create", "configmap", written, asked=asked)
        boot = road.reboot(lost)
        road.wait_until_ready(lost, boot_id=boot, asked=asked)
        wait_for(lambda: learners_of(road, lost) == dict.fromkeys(PLANES, False), seconds=PATIENCE_SECONDS)
        road.kubectl("get", "configmap", written, asked=lost)
