# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Break-glass before a real key service: a signed exception admits the machine that it names, and until it ends."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
    NamedDigest,
    PolicyException,
    profile_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue, MeasurementProfile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.service_bed import CHANGED_BOOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

    Machines = Callable[..., Machine]

FIRMWARE = 2
_SECONDS = 900


@pytest.fixture
def odd(bed: ServiceBed) -> Iterator[MeasurementProfile]:
    """A profile of another boot, in the API and not in the policy; it asks for one register more than the others."""
    boot = boots.load(CHANGED_BOOT)
    found = learned(boot)
    more = {**found.registers, FIRMWARE: (AllowedValue(digest=boot.pcrs[FIRMWARE], label="its firmware"),)}
    made = replace(found, name="odd", registers=more)
    bed.api.apply(render_profile(made))
    yield made
    bed.sign()
    bed.api.kubectl("delete", "measurementprofile", made.name)


def refused(machine: Machine) -> str:
    with pytest.raises(AttestedError):
        machine.ask()
    return str(machine.bed.last_refusal("key")["reason"])


def admitted(machine: Machine) -> str:
    """Return the profile of its ticket, once the key service's watch has brought what it has to quote."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            machine.ask()
        except AttestedError:
            assert time.monotonic() < deadline, machine.bed.last_refusal("key")
            time.sleep(0.2)
        else:
            return str(machine.identity()["status"]["lastAttestation"]["profile"])


def sign(bed: ServiceBed, profile: MeasurementProfile, machine: Machine, *, hours: int) -> None:
    """Sign an exception that ends in so many hours, or ended so many ago."""
    exception = PolicyException(
        profile=NamedDigest(profile.name, profile_sha256(profile)),
        machines=(machine.tpm.ek.public.spki_sha256(),),
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours),
        why="its firmware came first",
    )
    bed.sign(exceptions=[exception])


def test_an_exception_admits_the_machine_that_it_names_and_until_it_ends(
    bed: ServiceBed, machines: Machines, odd: MeasurementProfile
) -> None:
    named, other = (machines(boot=boots.load(CHANGED_BOOT)) for _number in range(2))
    assert [refused(one) for one in (named, other)] == ["PCR_MISMATCH"] * 2
    sign(bed, odd, named, hours=1)
    assert admitted(named) == odd.name
    assert refused(other) == "PCR_MISMATCH"
    sign(bed, odd, named, hours=-1)
    assert refused(named) == "PCR_MISMATCH"
