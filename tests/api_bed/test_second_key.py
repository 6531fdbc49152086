# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second endorsement key of a chip: the object's rules, tickets over either key, and what a revocation covers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import PolicyClient
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import REVOKED_LABEL
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

    Machines = Callable[..., Machine]

KIND = "nodeidentities.attested-kubernetes.dev"
ATTEMPTS = "joinattempts.attested-kubernetes.dev"
FIRST, SECOND, THIRD = "e1" * 32, "e2" * 32, "e3" * 32
_SECONDS = 900


def identity(ek: str = FIRST, node: str = "alias-1", **spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": node, "role": "worker", "admission": "Approved", **spec},
    }


def refused(api: ApiBed, document: dict[str, Any]) -> str:
    with pytest.raises(RuntimeError) as caught:
        api.apply(document)
    return str(caught.value)


@pytest.fixture
def cleaned(api: ApiBed) -> Iterator[None]:
    """Take the identity of this file's constants away again."""
    yield
    api.kubectl("delete", KIND, identity()["metadata"]["name"], "--ignore-not-found")


@pytest.mark.usefixtures("cleaned")
def test_an_alias_is_added_once_and_found_by_the_api(api: ApiBed) -> None:
    api.apply(identity())
    api.apply(identity(ekAliasSha256=SECOND))
    for change in ({"ekAliasSha256": THIRD}, {}):
        said = refused(api, identity(**change))
        assert "ekAliasSha256 is immutable once it is set" in said
    words = ("get", KIND, f"--field-selector=spec.ekAliasSha256={SECOND}", "-o", "name")
    assert api.kubectl(*words).split() == [f"nodeidentity.attested-kubernetes.dev/{identity()['metadata']['name']}"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"ekAliasSha256": FIRST}, "ekAliasSha256 is another key than ekSha256", id="the first key again"),
        pytest.param({"ekAliasSha256": "E2" * 32}, "ekAliasSha256", id="upper-case digits"),
        pytest.param(
            {"ekAliasSha256": SECOND, "admission": "Pending", "nodeName": f"ek-{FIRST[:20]}"},
            "a machine that waits has one key",
            id="of a machine that waits",
        ),
    ],
)
def test_an_alias_that_means_nothing_is_refused(api: ApiBed, spec: dict[str, str], said: str) -> None:
    assert said in refused(api, identity(**spec))


def sha(key: LoadedKey) -> str:
    return key.public.spki_sha256()


@pytest.fixture
def chip(machines: Machines) -> tuple[Machine, LoadedKey, LoadedKey]:
    """A machine of which both keys are enrolled, and the two."""
    machine = machines(enroll=False)
    first, second = machine.tpm.ek, machine.tpm.another_ek()
    machine.enroll(ekAliasSha256=sha(second))
    return machine, first, second


def reason(bed: ServiceBed, machine: Machine) -> dict[str, Any]:
    """Return the line of the refusal that the machine gets."""
    with pytest.raises(AttestedError):
        machine.ask()
    return bed.last_refusal("key")


def test_a_ticket_over_either_key_is_one_machines(bed: ServiceBed, chip: Any) -> None:
    machine, first, second = chip
    one = machine.ask()
    machine.tpm.ek, machine.disk_id = second, one.public.disk_id
    other = machine.ask()
    assert (other.public.node_name, other.public.disk_id) == (machine.name, one.public.disk_id)
    assert other.secrets.disk_key == one.secrets.disk_key
    line = [line for line in bed.lines("key") if line.get("ek") == sha(second)][-1]
    assert (line["node"], line["identity"]) == (machine.name, identity_of(first).name)
    assert identity_of(second).name not in bed.api.kubectl("get", KIND, "-o", "name")


def test_evidence_is_pushed_over_either_key(chip: Any) -> None:
    machine, first, second = chip
    machine.ask()
    machine.lock()
    machine.tpm.ek = second
    assert machine.reattest()
    machine.tpm.ek = first
    assert machine.reattest()


def revoke(api: ApiBed, name: str) -> None:
    change = {"metadata": {"labels": {REVOKED_LABEL: "true"}}, "spec": {"admission": "Revoked"}}
    api.kubectl("patch", KIND, name, "--type=merge", "-p", json.dumps(change))


def test_a_revocation_covers_the_second_key_for_ever(bed: ServiceBed, chip: Any) -> None:
    """At once; in the record outside etcd, so also where the chip is enrolled anew by its second key."""
    machine, first, second = chip
    machine.ask()
    revoke(bed.api, identity_of(first).name)
    for key in (second, first):
        machine.tpm.ek = key
        assert reason(bed, machine)["reason"] == "IDENTITY_REVOKED"
    deadline = time.monotonic() + _SECONDS
    while not {sha(first), sha(second)} <= set(PolicyClient(bed.policy_socket).state().revoked):
        assert time.monotonic() < deadline, "the revocation was not recorded with both keys"
        time.sleep(0.1)
    machine.tpm.ek = second
    machine.enroll(name=f"{machine.name}-anew")
    assert reason(bed, machine)["reason"] == "IDENTITY_REVOKED"


def test_a_refusal_over_the_second_key_is_told_of_the_machine(bed: ServiceBed, chip: Any) -> None:
    machine, first, second = chip
    machine.enroll(ekAliasSha256=sha(second), admission="Refused")
    machine.tpm.ek = second
    assert reason(bed, machine)["reason"] == "IDENTITY_REFUSED"
    name, deadline = f"{identity_of(first).name}-identity-refused", time.monotonic() + _SECONDS
    while name not in bed.api.kubectl("get", ATTEMPTS, "-o", "name"):
        assert time.monotonic() < deadline, "the attempt was not written"
        time.sleep(0.2)
    status = bed.api.get(ATTEMPTS, name)["status"]
    assert (status["ekSha256"], status["machine"]) == (sha(second), identity_of(first).name)
    assert status["nodeName"] == machine.name


def test_the_second_key_of_one_machine_is_no_other_machine(bed: ServiceBed, chip: Any, machines: Machines) -> None:
    """Two objects that claim one key let neither in, whichever was there first; taken back, both are as they were."""
    machine, first, second = chip
    thief = machines(enroll=False)
    thief.tpm.ek = second
    thief.enroll()
    for key in (first, second):
        machine.tpm.ek = key
        line = reason(bed, machine)
        assert line["reason"] == "EK_ALIAS_TAKEN"
        assert thief.name in line["detail"]
    bed.api.kubectl("delete", KIND, identity_of(second).name)
    assert machine.ask().public.node_name == machine.name
