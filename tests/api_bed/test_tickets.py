# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets through the real relay and both real services: who gets one, and who is refused for which one reason.

Every refusal changes one point of the same good exchange. The machine is told the coarse text only; the code is read
from the key service's log, as an operator reads it. What has a name among the known attacks stands in `tests/attacks`,
on this very bed: replay (S1), a guessed proof (S5), a taken name (S6), a stolen ticket or token (S14), a certificate
request for another (S15). Further control planes: `test_control_planes.py`.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.refusal import refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import (
    CHANGED_BOOT,
    Attack,
    Machine,
    ServiceBed,
    bundle_of,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

    Machines = Callable[..., Machine]

# ---- who gets a ticket


def test_the_ticket_brings_the_machines_own_secrets(bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    material = machine.ask()
    status = machine.identity()["status"]
    assert status["diskId"] == material.public.disk_id
    assert status["phase"] == "Admitted"
    assert status["lastAttestation"]["profile"] == "deb13-base"
    assert material.secrets.disk_key == disk_key(bed.bundle.master, DiskId(material.public.disk_id))
    assert material.public.joined_before is False


def test_a_repeated_request_is_answered_alike_and_counted_once(machines: Machines) -> None:
    machine = machines()
    first, second = machine.ask(), machine.ask()
    assert first == second
    assert machine.identity()["status"]["tickets"]["issued"] == 1


def test_a_new_key_supersedes_the_ticket_and_is_counted(machines: Machines) -> None:
    machine = machines()
    first = machine.ask()
    machine.store.discard_kubelet_key()
    second = machine.ask()
    assert first.public.kubelet_certificate != second.public.kubelet_certificate
    assert first.public.disk_id == second.public.disk_id
    tickets = machine.identity()["status"]["tickets"]
    assert (tickets["issued"], tickets["superseded"]) == (2, 1)


def test_a_locked_machine_of_this_cluster_may_fetch_its_ticket_again(machines: Machines) -> None:
    machine = machines()
    first = machine.ask()
    machine.lock()
    machine.disk_id = first.public.disk_id
    assert machine.ask().secrets.disk_key == first.secrets.disk_key


def test_two_machines_have_two_disks(machines: Machines) -> None:
    one, two = machines().ask(), machines().ask()
    assert one.public.disk_id != two.public.disk_id
    assert one.secrets.disk_key != two.secrets.disk_key


def test_an_untouched_exchange_by_hand_is_good(machines: Machines) -> None:
    """The attacks below change one point of this."""
    assert machines().attack(Attack()).response


# ---- who does not


def without(register: int) -> Callable[[Any], Any]:
    def change(challenge: Any) -> Any:
        return dataclasses.replace(challenge, selection=tuple(one for one in challenge.selection if one != register))

    return change


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        pytest.param(Attack(exporter=b"\x01" * 32), "BINDING_MISMATCH", id="evidence over another TLS session"),
        pytest.param(
            Attack(sent=lambda request: request[:-1] + bytes([request[-1] ^ 1])),
            "BINDING_MISMATCH",
            id="a changed request byte",
        ),
        pytest.param(
            Attack(challenge=lambda one: dataclasses.replace(one, nonce=b"\x02" * 32)),
            "ACTIVATION_NOT_PROVEN",
            id="evidence over another nonce",
        ),
        pytest.param(Attack(challenge=without(9)), "QUOTE_SELECTION", id="quote over other PCRs"),
        pytest.param(
            Attack(bound=lambda one: dataclasses.replace(one, hpke_public=OneTimeKey.generate().public)),
            "BINDING_MISMATCH",
            id="another one-time key than the quote names",
        ),
        pytest.param(
            Attack(bound=lambda one: dataclasses.replace(one, challenge_id=b"\x04" * 16)),
            "CHALLENGE_UNKNOWN",
            id="an answer to no challenge",
        ),
        pytest.param(
            Attack(bound=lambda one: dataclasses.replace(one, event_logs_sha256=b"\x05" * 32)),
            "EVENT_LOG_CHANGED",
            id="other event logs than the ones bound",
        ),
        pytest.param(Attack(other=SoftTpm()), "ACTIVATION_NOT_PROVEN", id="AK of another TPM"),
        pytest.param(
            Attack(fields={"disk_uuid": "33333333-3333-4333-8333-333333333333"}),
            "DISK_ID_NOT_ASSIGNED",
            id="a machine that names another's disk at its first join",
        ),
    ],
)
def test_attack(bed: ServiceBed, machines: Machines, attack: Attack, code: str) -> None:
    machine = machines()
    assert refused(lambda: machine.attack(attack), bed)["reason"] == code
    assert "diskId" not in machine.identity().get("status", {})


def test_changed_kernel_command_line(bed: ServiceBed, machines: Machines) -> None:
    machine = machines(boot=boots.load(CHANGED_BOOT))
    line = refused(machine.ask, bed)
    assert line["reason"] == "PCR_MISMATCH"
    assert machine.boot.command_line.decode().split()[-1] in line["detail"]
    assert line["ek"] == machine.identity()["spec"]["ekSha256"]


def test_unknown_tpm(bed: ServiceBed, machines: Machines) -> None:
    assert refused(machines(enroll=False).ask, bed)["reason"] == "IDENTITY_UNKNOWN"


@pytest.mark.parametrize(
    ("admission", "code"),
    [
        pytest.param("Refused", "IDENTITY_REFUSED", id="refused"),
        pytest.param("Revoked", "IDENTITY_REVOKED", id="revoked"),
    ],
)
def test_machine_that_is_not_admitted(bed: ServiceBed, machines: Machines, admission: str, code: str) -> None:
    machine = machines()
    machine.ask()
    machine.enroll(admission=admission)
    assert refused(machine.ask, bed)["reason"] == code


def test_another_disk_than_the_assigned_one(bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    machine.ask()
    machine.disk_id = "33333333-3333-4333-8333-333333333333"
    assert refused(machine.ask, bed)["reason"] == "DISK_ID_NOT_ASSIGNED"


def test_machine_locked_to_another_cluster(bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    machine.tpm.pcr_event(15, b"another cluster")
    assert refused(machine.ask, bed)["reason"] == "NODELOCK_FOREIGN"


def test_rebooted_machine_gets_a_new_ticket_and_its_old_disk(machines: Machines) -> None:
    machine = machines()
    first = machine.ask()
    machine.tpm.reset()
    machine.disk_id = first.public.disk_id
    second = machine.ask()
    assert second.secrets.disk_key == first.secrets.disk_key
    assert second.public.kubelet_certificate != first.public.kubelet_certificate
    assert machine.identity()["status"]["tpm"]["resetCount"] == machine.tpm.clock_info.reset_count


def put_back(machine: Machine) -> None:
    machine.tpm.clock_info = dataclasses.replace(machine.tpm.clock_info, reset_count=1)


def turn_back_time(machine: Machine) -> None:
    machine.tpm.clock_info = dataclasses.replace(machine.tpm.clock_info, clock=1)


def reboot_and_lock(machine: Machine) -> None:
    machine.tpm.reset()
    machine.lock()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(put_back, "TPM_ROLLED_BACK", id="a TPM whose older state was put back"),
        pytest.param(turn_back_time, "TPM_ROLLED_BACK", id="a TPM whose time went back"),
        pytest.param(reboot_and_lock, "NODELOCK_NO_TICKET", id="a machine that locked itself after a reboot"),
    ],
)
def test_tpm_that_does_not_go_on_from_its_last_ticket(
    bed: ServiceBed, machines: Machines, change: Callable[[Machine], None], code: str
) -> None:
    machine = machines()
    machine.ask()
    before = machine.identity()["status"]
    change(machine)
    assert refused(machine.ask, bed)["reason"] == code
    assert machine.identity()["status"] == before


def test_an_admin_accepts_a_tpm_that_was_cleared(bed: ServiceBed, machines: Machines) -> None:
    """The walk of docs/machines.md: the counters are forgotten by hand, which the API's audit log shows."""
    machine = machines()
    machine.ask()
    put_back(machine)
    assert refused(machine.ask, bed)["reason"] == "TPM_ROLLED_BACK"
    words = ("patch", "nodeidentity", machine.identity()["metadata"]["name"], "--subresource=status", "--type=merge")
    bed.api.kubectl(*words, "-p", '{"status": {"tpm": null}}')
    assert machine.ask().public.node_name == machine.name


def test_a_profile_says_which_machines_use_it(api: ApiBed, machines: Machines) -> None:
    """Written beside the calls, seconds later, and the profile goes on to count: it is a status, not what is signed."""
    machine = machines("a0-in-use-")  # named among the first, whatever other tests have left
    machine.ask()
    deadline = time.monotonic() + 60
    while machine.name not in (told := api.get("measurementprofile", "deb13-base").get("status", {})).get("nodes", []):
        assert time.monotonic() < deadline, told
        time.sleep(0.5)
    assert told["inUseBy"] >= 1
    header, line = [shown.split() for shown in api.kubectl("get", "measurementprofile", "deb13-base").splitlines()]
    assert dict(zip(header, line, strict=False))["NAME"] == "deb13-base"
    assert str(told["inUseBy"]) in line
    assert machine.ask()


def test_empty_policy_refuses_everyone(bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    kept = bed.api.get("measurementprofiles.attested-kubernetes.dev", "deb13-base")
    bed.api.kubectl("delete", "measurementprofile", "deb13-base")
    try:
        assert refused(machine.ask, bed)["reason"] == "POLICY_EMPTY"
    finally:
        kept["metadata"] = {"name": "deb13-base"}
        bed.api.apply(kept)
    assert machine.ask()


# ---- what else must not work


def test_foreign_join_service(machines: Machines) -> None:
    """The machine pins another join CA: it shows nothing of itself to this service."""
    machine = machines()
    foreign = JoinCaPins.from_pem(bundle_of().join_ca_certificate)
    with pytest.raises(AttestedError) as caught:
        machine.ask(pins=foreign)
    assert caught.value.code == "JOIN_CA_MISMATCH"
    assert "status" not in machine.identity()


def test_join_service_of_another_cluster(machines: Machines) -> None:
    machine = machines()
    with pytest.raises(AttestedError) as caught:
        machine.ask(cluster_id=b"\x01" * 32)
    assert caught.value.code == "JOIN_CLUSTER_MISMATCH"


def test_a_nodes_own_csr_is_approved_by_nobody(api: ApiBed, machines: Machines, tmp_path: Path) -> None:
    """No auto-approval binding exists, so a node cannot turn its certificate into another one."""
    bindings = api.get("clusterrolebindings")["items"]
    assert not [one for one in bindings if "certificatesigningrequests" in one["roleRef"]["name"]]
