# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of an init: the next try, the admin's, ends with a node, and with one lock event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.tests.support.boot_lab import (
    CONTROL_PLANE,
    DOOR,
    UNIT,
    make_fresh,
    state_of,
)
from ansible_collections.attested.kubernetes.tests.support.boundaries import INIT
from ansible_collections.attested.kubernetes.tests.support.records import recorded
from ansible_collections.attested.kubernetes.tests.support.road import assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.striking import FAULTS, PATIENCE_SECONDS, Order, suffer, tell
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road
    from ansible_collections.attested.kubernetes.tests.system.matrix.conftest import StruckLab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def road(struck_lab: StruckLab) -> Iterator[Road]:
    """A control plane alone: nobody but the admin asks it."""
    with struck_lab("attested-inits", "127.85.0", struck=(CONTROL_PLANE,)) as one:
        yield one


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", INIT)
def test_an_init_goes_on_after_a_fault(road: Road, point: str, fault: str) -> None:
    order = Order(point=point, fault=fault)
    with recorded(point, fault):
        make_fresh(road, CONTROL_PLANE)
        Site.at(str(road.site)).admin_kubeconfig.unlink(missing_ok=True)  # of a cluster that is no more
        wait_for(lambda: state_of(road, CONTROL_PLANE, DOOR) == "active")
        tell(road, CONTROL_PLANE, order)
        first = road.start("init")
        suffer(road, CONTROL_PLANE, order)
        if road.finish("init", first).returncode != 0:
            road.play("init")
        wait_for(lambda: state_of(road, CONTROL_PLANE, UNIT) == "inactive", seconds=PATIENCE_SECONDS)
        assert_one_lock_event(road, CONTROL_PLANE)
        road.wait_until_ready(CONTROL_PLANE, boot_id=road.boot_id(CONTROL_PLANE))
