# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Re-attestation against a real API: what a node pushes is judged, and the identity's status says when it was good."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.service_bed import (
    CHANGED_BOOT,
    GOOD_BOOT,
    Machine,
    ServiceBed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

    Machines = Callable[..., Machine]


def refusal(machine: Machine, bed: ServiceBed) -> str:
    """Return the key service's reason; the machine itself hears the coarse text and no more."""
    before = len(bed.lines("key"))
    with pytest.raises(AttestedError) as caught:
        machine.reattest()
    assert caught.value.code == "EVIDENCE_REFUSED"
    assert caught.value.message.startswith("expected the evidence to be taken, got 'attestation refused'")
    line = next(line for line in bed.lines("key")[before:] if line.get("outcome") == "refused")
    assert line["event"] == "key_reattest"
    return str(line["reason"])


def joined(machine: Machine) -> Machine:
    """Bring a machine as far as its lock."""
    machine.ask()
    machine.lock()
    return machine


def status_of(machine: Machine) -> dict[str, Any]:
    status: dict[str, Any] = machine.identity()["status"]
    return status


def test_a_good_push_renews_the_last_attestation_and_nothing_else(machines: Machines) -> None:
    machine = joined(machines())
    before = status_of(machine)
    begun = dt.datetime.now(dt.UTC)
    due = machine.reattest()
    after = status_of(machine)
    assert dt.timedelta(hours=2) < due - begun < dt.timedelta(hours=4)
    assert after["lastAttestation"]["time"] >= before["lastAttestation"]["time"]
    assert after["tpm"]["clock"] >= before["tpm"]["clock"]
    kept = ("phase", "diskId", "akName", "tickets")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_a_push_puts_the_values_that_were_judged_beside_the_profile(machines: Machines, bed: ServiceBed) -> None:
    """What `policy` holds against the next policy is what this profile judged, not what the last ticket's did."""
    machine = joined(machines())
    profile = learned(boots.load(GOOD_BOOT))
    pcr, allowed = max(profile.registers.items())
    newer = render_profile(dataclasses.replace(profile, name=f"a-{machine.name}", registers={pcr: allowed}))
    assert len(status_of(machine)["lastAttestation"]["registers"]) > 1
    bed.api.apply(newer)
    bed.sign(others=[newer])
    try:
        machine.reattest()
    finally:
        bed.sign()
        bed.api.kubectl("delete", "measurementprofile", newer["metadata"]["name"])
    last = status_of(machine)["lastAttestation"]
    assert last["profile"] == newer["metadata"]["name"]
    assert last["registers"] == [{"pcr": pcr, "sha256": machine.boot.pcrs[pcr].hex()}]


def test_a_control_plane_pushes_without_ever_having_had_a_ticket(machines: Machines, bed: ServiceBed) -> None:
    machine = machines(enroll=False)
    machine.enroll(role=Role.CONTROL_PLANE)
    bed.sign(identities=[machine.identity()])
    machine.lock()
    machine.reattest()
    assert status_of(machine)["lastAttestation"]["profile"]
    machine.tpm.reset()
    (machine.directory / "nodelock.log").unlink()
    machine.lock()
    machine.reattest()


def test_a_machine_that_is_not_locked_to_the_cluster_is_refused(machines: Machines, bed: ServiceBed) -> None:
    machine = machines()
    machine.ask()
    assert refusal(machine, bed) == "NODELOCK_OPEN"


def test_another_boot_is_refused_and_leaves_the_last_good_one_in_place(machines: Machines, bed: ServiceBed) -> None:
    machine = machines(boot=boots.load(CHANGED_BOOT))
    machine.lock()
    assert refusal(machine, bed) == "PCR_MISMATCH"
    assert "lastAttestation" not in machine.identity().get("status", {})


def test_a_rebooted_worker_that_locked_itself_without_a_ticket_is_refused(machines: Machines, bed: ServiceBed) -> None:
    machine = joined(machines())
    machine.tpm.reset()
    (machine.directory / "nodelock.log").unlink()
    machine.lock()
    assert refusal(machine, bed) == "NODELOCK_NO_TICKET"


def test_a_tpm_that_went_back_is_refused(machines: Machines, bed: ServiceBed) -> None:
    machine = machines()
    machine.tpm.reset()
    joined(machine)
    machine.tpm.clock_info = type(machine.tpm.clock_info)(
        clock=machine.tpm.clock_info.clock,
        reset_count=machine.tpm.clock_info.reset_count - 1,
        restart_count=machine.tpm.clock_info.restart_count,
        safe=machine.tpm.clock_info.safe,
    )
    assert refusal(machine, bed) == "TPM_ROLLED_BACK"


def test_a_revoked_machine_is_refused_at_once(machines: Machines, bed: ServiceBed) -> None:
    machine = joined(machines())
    machine.reattest()
    machine.enroll(admission="Revoked")
    assert refusal(machine, bed) == "IDENTITY_REVOKED"


def test_a_machine_that_nobody_enrolled_is_refused(machines: Machines, bed: ServiceBed) -> None:
    machine = machines(enroll=False)
    machine.lock()
    assert refusal(machine, bed) == "IDENTITY_UNKNOWN"


@pytest.fixture
def limited(api: ApiBed) -> Iterator[ServiceBed]:
    """Both services, where one machine may do eight things of a kind at once and then none for a quarter of an hour."""
    made = ServiceBed(api)
    path = made.directory / "key.yml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tickets_per_second": 0.001, "ticket_burst": 8}))
    try:
        made.start()
        yield made
    finally:
        assert made.stop() == 0


def test_one_machine_pushes_as_often_as_the_configuration_allows(limited: ServiceBed, tmp_path: Path) -> None:
    """It is told when to push again, nothing is written until then, and tickets have a limit of their own."""
    machine = Machine("rate-1", limited, tmp_path / "rate")
    machine.enroll()
    joined(machine)
    for _unused in range(8):
        machine.reattest()
    before = status_of(machine)
    with pytest.raises(AttestedError) as caught:
        machine.reattest()
    assert caught.value.code == "JOIN_SERVICE_BUSY"
    assert caught.value.retry_after_seconds is not None
    assert limited.last_refusal("key")["reason"] == "IDENTITY_RATE"
    assert status_of(machine) == before
    machine.tpm.reset()
    (machine.directory / "nodelock.log").unlink()
    machine.ask()
