# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S19: an enrolled, good machine asks for another machine's disk key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.tests.support.refusal import refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S19",
    title="Another node's key",
    case="a shipped rule that releases to any affirming token",
    bed="api",
    stops=(("keyservice/release.py step 6", "DISK_ID_NOT_ASSIGNED"),),
)

STRANGE = ["..", "../../x", "%2e%2e", "*", "measurementSecret", "clusterID", "\x00", "x" * 300]


def audited(line: dict[str, Any], machine: Machine) -> None:
    """The log names the machine by its endorsement key, which it proved."""
    assert (line["reason"], line["ek"]) == ("DISK_ID_NOT_ASSIGNED", machine.identity()["spec"]["ekSha256"])


def test_two_good_nodes(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """Each gets its own key; A that names B's disk gets none, B is not touched."""
    one, two = machines(), machines()
    mine, theirs = one.ask(), two.ask()
    assert mine.secrets.disk_key != theirs.secrets.disk_key
    one.disk_id = theirs.public.disk_id
    audited(refused(one.ask, bed), one)
    assert two.identity()["status"]["diskId"] == theirs.public.disk_id
    one.disk_id = mine.public.disk_id
    assert one.ask().secrets.disk_key == disk_key(bed.bundle.master, DiskId(mine.public.disk_id))


@pytest.mark.parametrize("disk", STRANGE)
def test_ids_that_are_none(bed: ServiceBed, machines: Callable[..., Machine], disk: str) -> None:
    machine = machines()
    assert machine.ask()
    audited(refused(lambda: machine.attack(Attack(fields={"disk_uuid": disk})), bed), machine)


def test_an_empty_id_is_ones_own(machines: Callable[..., Machine]) -> None:
    """Before and after the assignment; never a key for nothing."""
    machine = machines()
    first = machine.ask()
    assert machine.disk_id == ""
    assert machine.ask().secrets.disk_key == first.secrets.disk_key


def test_the_first_ask_names_no_disk(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """Else a new machine could claim the disk of one that is gone."""
    gone = machines()
    disk = gone.ask().public.disk_id
    machine = machines()
    machine.disk_id = disk
    audited(refused(machine.ask, bed), machine)
