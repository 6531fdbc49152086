# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets for further control planes, through both real services and a real API: what is in one, and whose turn it is.

The Node of a machine is written by the admin here, with the label that kubeadm gives it; no kubelet runs.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import PolicyClient
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import (
    CONTROL_PLANE_LABEL,
    LEASE,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import ENCRYPTION_FILE
from ansible_collections.attested.kubernetes.plugins.module_utils.node.retry import ask_again
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import (
    Expected,
    TicketMaterial,
    open_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import pause_before_retry
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.control_plane import ENCRYPTION, shared_files, write_files
from ansible_collections.attested.kubernetes.tests.support.policy_site import MemoryCounter, authority_of, record_in
from ansible_collections.attested.kubernetes.tests.support.refusal import refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import MASTER_CANARY, Attack
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Exchanged, Machine, ServiceBed

    Machines = Callable[..., Machine]

LEASES = ("--namespace=kube-system", "lease", LEASE)
_JOIN_SECONDS = 90
FILES = {**shared_files(), ENCRYPTION_FILE: ENCRYPTION}


@pytest.fixture(autouse=True)
def turns(api: ApiBed, bed: ServiceBed) -> Iterator[None]:
    """Files of a control plane, and nobody's turn."""
    write_files(bed.kubernetes, FILES)
    api.kubectl("delete", "--ignore-not-found", *LEASES)
    yield
    api.kubectl("delete", "--ignore-not-found", *LEASES)


@pytest.fixture
def planes(bed: ServiceBed, machines: Machines) -> Callable[[int], list[Machine]]:
    """Make machines that are enrolled as control planes, and sign them with every revocation."""

    def make(count: int) -> list[Machine]:
        made = [machines("cp", enroll=False) for _unused in range(count)]
        for machine in made:
            machine.enroll(role=Role.CONTROL_PLANE)
        found = bed.api.get("nodeidentities.attested-kubernetes.dev")["items"]
        revoked = {one["spec"]["ekSha256"] for one in found if one["spec"]["admission"] == "Revoked"}  # by another file
        revoked |= set(PolicyClient(bed.policy_socket).state().revoked)  # aliases too
        bed.sign(identities=[machine.identity() for machine in made], revoked=sorted(revoked))
        return made

    return make


def ask(machine: Machine) -> TicketMaterial:
    return machine.ask(role=Role.CONTROL_PLANE)


def outcome(machine: Machine) -> str:
    try:
        ask(machine)
    except AttestedError as error:
        assert error.retry_after_seconds == 20.0
        return error.code
    return "given"


def holder(api: ApiBed) -> str:
    found = json.loads(api.kubectl("get", "--ignore-not-found", "-o", "json", *LEASES) or "{}")
    return str(found.get("spec", {}).get("holderIdentity", ""))


def hold(api: ApiBed, identity: str, *, since: timedelta) -> None:
    moment = (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    api.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": "kube-system"},
            "spec": {
                "holderIdentity": identity,
                "acquireTime": moment,
                "renewTime": moment,
                "leaseDurationSeconds": 600,
            },
        }
    )


def join(api: ApiBed, machine: Machine) -> None:
    """Let the Node of ``machine`` appear, and wait until its turn has ended."""
    labels = {CONTROL_PLANE_LABEL: ""}
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name, "labels": labels}})
    deadline = time.monotonic() + _JOIN_SECONDS
    while holder(api):
        assert time.monotonic() < deadline, machine.identity().get("status")
        time.sleep(0.5)


# ---- what is in it


def test_a_signed_control_plane_gets_what_makes_one(
    bed: ServiceBed, planes: Callable[[int], list[Machine]], tmp_path: Path
) -> None:
    (machine,) = planes(1)
    material = ask(machine)
    assert {name: data.reveal() for name, data in material.secrets.control_plane_files.items()} == FILES
    assert KeyBundle.from_bytes(material.secrets.key_service_bundle.reveal()) == bed.bundle
    record = record_in(tmp_path / "record", MemoryCounter(), cluster_id=bed.bundle.cluster_id, node=machine.name)
    seen = authority_of(record, cluster_id=bed.bundle.cluster_id).adopt(json.loads(material.secrets.policy.reveal()))
    assert seen.generation == bed.policy()["spec"]["generation"]
    assert holder(bed.api) == machine.identity()["metadata"]["name"]
    assert machine.identity()["status"]["phase"] == "Admitted"


def opened(machine: Machine, exchanged: Exchanged, **changes: Any) -> TicketMaterial:
    given = exchanged.answer
    good = {"secret": given.secret, "one_time_key": given.one_time_key}
    expected = Expected(
        cluster_id=machine.bed.bundle.cluster_id,
        node_name=machine.name,
        disk_id="",
        binding=given.binding,
        kubelet_key=machine.store.kubelet_key(),
        role=Role.CONTROL_PLANE,
    )
    pins = JoinCaPins.from_pem(machine.bed.bundle.join_ca_certificate)
    return open_ticket(exchanged.response, expected=expected, pins=pins, now=datetime.now(UTC), **{**good, **changes})


def test_it_opens_on_its_machine_in_its_exchange_and_nowhere_else(planes: Callable[[int], list[Machine]]) -> None:
    (machine,) = planes(1)
    exchanged = machine.attack(Attack(fields={"is_control_plane": True}))
    assert opened(machine, exchanged).secrets.control_plane_files
    for changes in ({"secret": b"x" * 32}, {"one_time_key": OneTimeKey.generate()}):
        with pytest.raises(AttestedError) as caught:
            opened(machine, exchanged, **changes)
        assert caught.value.code == "SEAL_UNOPENABLE"
    for name in ("pki/ca.key", "pki/sa.key"):
        assert not any(one in exchanged.response for one in spellings_of_pem(FILES[name]))


def test_no_secret_of_it_is_in_a_log_of_either_service(bed: ServiceBed, planes: Callable[[int], list[Machine]]) -> None:
    (machine,) = planes(1)
    ask(machine)
    (bed.kubernetes / "pki/sa.key").write_bytes(FILES["pki/ca.key"])  # a refusal that has just read the keys
    with pytest.raises(AttestedError):
        ask(machine)
    line = bed.last_refusal("key")
    assert line["reason"] == "CONTROL_PLANE_FILES_UNUSABLE"
    needles = [one for name, data in FILES.items() if name.endswith(".key") for one in spellings_of_pem(data)]
    needles += [*spellings(MASTER_CANARY), *spellings(b"canary-canary-canary-canary-0000")]
    written = [bed.directory / "key.log", bed.directory / "join.log", *(bed.directory / "audit").rglob("*")]
    texts = [path.read_bytes() for path in written if path.is_file()]
    assert any(machine.name.encode() in text for text in texts)
    assert not [one for one in needles for text in texts if one in text]


# ---- who gets none


def test_a_control_plane_that_the_site_did_not_sign(bed: ServiceBed, machines: Machines) -> None:
    machine = machines("cp", enroll=False)
    machine.enroll(role=Role.CONTROL_PLANE)
    assert refused(lambda: ask(machine), bed)["reason"] == "IDENTITY_UNSIGNED"
    assert holder(bed.api) == ""


def test_a_worker_that_asks_as_a_control_plane(bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    assert refused(lambda: ask(machine), bed)["reason"] == "ROLE_NOT_REGISTERED"
    assert machine.ask().public.role is Role.WORKER
    assert holder(bed.api) == ""


def test_a_control_plane_that_asks_as_a_worker(bed: ServiceBed, planes: Callable[[int], list[Machine]]) -> None:
    (machine,) = planes(1)
    assert refused(machine.ask, bed)["reason"] == "ROLE_NOT_REGISTERED"
    assert holder(bed.api) == ""


def test_a_key_service_whose_record_was_put_back_serves_nobody(
    bed: ServiceBed, planes: Callable[[int], list[Machine]]
) -> None:
    """The file of an earlier policy is put under the service that runs; the site's hand heals it."""
    earlier = (bed.state / "policy-record.json").read_bytes()
    (machine,) = planes(1)
    ask(machine)
    (bed.state / "policy-record.json").write_bytes(earlier)
    assert refused(lambda: ask(machine), bed)["reason"] == "POLICY_ROLLED_BACK"
    bed.adopt()
    assert ask(machine).secrets.policy


# ---- whose turn it is


def test_two_at_once_join_one_after_the_other(api: ApiBed, planes: Callable[[int], list[Machine]]) -> None:
    both = planes(2)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(outcome, both))
    assert sorted(outcomes) == ["JOIN_SERVICE_BUSY", "given"]
    first, second = sorted(both, key=lambda one: one.identity()["metadata"]["name"] != holder(api))
    assert second.identity().get("status", {}) == {}
    assert outcome(second) == "JOIN_SERVICE_BUSY"
    join(api, first)
    assert outcome(second) == "given"
    assert holder(api) == second.identity()["metadata"]["name"]


def test_who_is_told_to_wait_asks_again_and_gets_it(api: ApiBed, planes: Callable[[int], list[Machine]]) -> None:
    first, second = planes(2)
    ask(first)
    slept: list[float] = []

    class Clock:
        def monotonic(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            join(api, first)

    clock: Any = Clock()
    material = ask_again(lambda: ask(second), pause=pause_before_retry, clock=clock, wait_seconds=60.0)
    assert material.public.node_name == second.name
    assert slept == [20.0]


def test_a_turn_that_is_over_is_taken_over(api: ApiBed, planes: Callable[[int], list[Machine]]) -> None:
    (machine,) = planes(1)
    hold(api, "ek-gone", since=timedelta(seconds=590))
    assert outcome_busy_for(machine) <= 10.0
    hold(api, "ek-gone", since=timedelta(seconds=601))
    assert ask(machine)
    assert holder(api) == machine.identity()["metadata"]["name"]


def outcome_busy_for(machine: Machine) -> float:
    with pytest.raises(AttestedError) as caught:
        ask(machine)
    assert caught.value.code == "JOIN_SERVICE_BUSY"
    return caught.value.retry_after_seconds


def test_a_key_service_that_was_killed_between_turn_and_answer_gives_it_to_the_same_machine(
    api: ApiBed, bed: ServiceBed, planes: Callable[[int], list[Machine]]
) -> None:
    """What it leaves behind is a turn, and neither a status nor an answer."""
    one, other = planes(2)
    hold(api, one.identity()["metadata"]["name"], since=timedelta(seconds=5))
    bed.kill("key")
    bed.start_key_service()
    assert outcome(other) == "JOIN_SERVICE_BUSY"
    assert ask(one).secrets.control_plane_files
    assert holder(api) == one.identity()["metadata"]["name"]


def test_an_answer_that_was_lost_is_given_again(api: ApiBed, planes: Callable[[int], list[Machine]]) -> None:
    (machine,) = planes(1)
    first, second = ask(machine), ask(machine)
    assert first == second
    spec = json.loads(api.kubectl("get", "-o", "json", *LEASES))["spec"]
    assert spec["leaseTransitions"] == 0
    assert spec["renewTime"] > spec["acquireTime"]


# ---- rights


@pytest.mark.parametrize(
    ("verb", "name", "namespace", "allowed"),
    [
        *((verb, LEASE, "kube-system", True) for verb in ("get", "update", "create")),
        *((verb, LEASE, "kube-system", False) for verb in ("list", "watch", "patch", "delete")),
        *((verb, "another", "kube-system", False) for verb in ("get", "update")),
        *((verb, LEASE, "default", False) for verb in ("get", "update", "create")),
    ],
)
def test_the_key_service_may_touch_one_lease(api: ApiBed, verb: str, name: str, namespace: str, allowed: bool) -> None:
    attributes = {
        "verb": verb,
        "group": "coordination.k8s.io",
        "resource": "leases",
        "name": name,
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "attested:key-service", "resourceAttributes": attributes},
    }
    words = ("create", "-f", "-", "-o", "jsonpath={.status.allowed}")
    assert api.kubectl(*words, stdin=json.dumps(review)) == str(allowed).lower()


def test_the_key_service_may_create_no_other_lease(api: ApiBed) -> None:
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    other = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "another", "namespace": "kube-system"},
    }
    said = api.kubectl("create", "-f", "-", user="key-service", stdin=json.dumps(other), check=False)
    assert "takes turns by one Lease" in said
