# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of a lab machine before and after a join with a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.boot_lab import (
    existing,
    is_joined,
    make_absent,
    make_fresh,
    wait_until_joined,
)
from ansible_collections.attested.kubernetes.tests.support.boundaries import REJOIN
from ansible_collections.attested.kubernetes.tests.support.road import assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.striking import PATIENCE_SECONDS

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road


def bring_before(road: Road, worker: str, point: str) -> None:
    """Prepare a worker that reaches ``point`` after its boot: without membership, or a member."""
    if point not in REJOIN:
        make_absent(road, worker)
    elif not is_joined(road, worker):
        make_fresh(road, worker)
        wait_until_joined(road, worker, seconds=PATIENCE_SECONDS)


def assert_a_clean_node(road: Road, machine: str, *, asked: str = "cp-1", seconds: float = PATIENCE_SECONDS) -> None:
    """A machine that continues by itself becomes a ready node with one lock event, and keeps no ticket."""
    wait_until_joined(road, machine, seconds=seconds)
    assert_one_lock_event(road, machine)
    road.wait_until_ready(machine, boot_id=road.boot_id(machine), asked=asked)
    assert existing(road, machine, "/run/attested/tickets/*") == []
