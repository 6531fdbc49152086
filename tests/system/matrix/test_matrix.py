# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of a worker's join: the next try ends with a node, and with one lock event.

The steps are those of the code itself; a join is tried again by its bootstrapper. Three workers of one cluster go
through the cases side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.ahead import Ahead
from ansible_collections.attested.kubernetes.tests.support.boundaries import JOIN
from ansible_collections.attested.kubernetes.tests.support.joining import assert_a_clean_node, bring_before
from ansible_collections.attested.kubernetes.tests.support.records import recorded
from ansible_collections.attested.kubernetes.tests.support.striking import FAULTS, Order, suffer, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road
    from ansible_collections.attested.kubernetes.tests.system.matrix.conftest import StruckLab

pytestmark = pytest.mark.slow

WORKERS = ("w-1", "w-2", "w-3")


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest, struck_lab: StruckLab) -> Iterator[Ahead[Order]]:
    """All cases of this run, under way."""
    mine = (one for one in request.session.items if one.path == request.path)
    params = [one.callspec.params for one in mine if isinstance(one, pytest.Function)]
    orders = [Order(point=str(one["point"]), fault=str(one["fault"])) for one in params]
    with struck_lab("attested-matrix", "127.76.0", workers=len(WORKERS), struck=WORKERS) as road:

        def run(worker: str, order: Order) -> None:
            join_through(road, worker, order)

        with Ahead(run, cases=orders, machines=WORKERS) as ahead:
            yield ahead


def join_through(road: Road, worker: str, order: Order) -> None:
    """Let ``worker`` join, and suffer the fault on the way."""
    with recorded(order.point, order.fault):
        bring_before(road, worker, order.point)
        tell(road, worker, order)
        road.lab.ssh(worker, "sudo systemctl reboot")
        suffer(road, worker, order)
        assert_a_clean_node(road, worker)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", JOIN)
def test_a_join_goes_on_after_a_fault(cases: Ahead[Order], point: str, fault: str) -> None:
    cases.wait_for(Order(point=point, fault=fault))
