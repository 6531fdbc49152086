# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of a further control plane's join: the next try ends with a voting member of etcd.

The steps are those of the code itself. The two others stay, so etcd has its majority at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.boot_lab import make_absent
from ansible_collections.attested.kubernetes.tests.support.boundaries import MEMBER
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.joining import assert_a_clean_node
from ansible_collections.attested.kubernetes.tests.support.records import recorded
from ansible_collections.attested.kubernetes.tests.support.striking import FAULTS, PATIENCE_SECONDS, Order, suffer, tell
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road
    from ansible_collections.attested.kubernetes.tests.system.matrix.conftest import StruckLab

pytestmark = pytest.mark.slow

STAY, JOINER = ("cp-1", "cp-2"), "cp-3"


@pytest.fixture(scope="module")
def planes(struck_lab: StruckLab) -> Iterator[Road]:
    """Three control planes: two are enough to go on without the third."""
    with struck_lab("attested-planes", "127.78.0", control_planes=3, struck=(JOINER,)) as one:
        yield one


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", MEMBER)
def test_a_control_plane_joins_after_a_fault(planes: Road, point: str, fault: str) -> None:
    order = Order(point=point, fault=fault)
    # a worker's join has steps of the same name, and cases of its own in the record
    with recorded(f"join-control-plane:{point.partition(':')[2]}", fault):
        make_absent(planes, JOINER)
        wait_for(lambda: learners_of(planes) == dict.fromkeys(STAY, False))
        tell(planes, JOINER, order)
        planes.lab.ssh(JOINER, "sudo systemctl reboot")
        suffer(planes, JOINER, order)
        assert_a_clean_node(planes, JOINER, seconds=2 * PATIENCE_SECONDS)
        assert learners_of(planes) == dict.fromkeys((*STAY, JOINER), False)
