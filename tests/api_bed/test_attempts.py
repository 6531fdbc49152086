# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals become objects and Events of a real API, and never anybody's business but the operator's."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import list_attempts
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

    Machines = Callable[..., Machine]

KIND = "joinattempts.attested-kubernetes.dev"
_SECONDS = 900


def refused(action: Callable[[], object]) -> None:
    with pytest.raises(AttestedError) as caught:
        action()
    assert caught.value.code == "TICKET_REFUSED"


def attempts_of(api: ApiBed, *, reason: str, node: str = "") -> list[dict[str, Any]]:
    """Return the attempts that were refused for ``reason``, of all machines or of ``node``."""
    found = list_attempts(api.get(KIND)["items"])
    return [one for one in found if one["reason"] == reason and node in {"", one["node"], one["machine"]}]


def attempts(api: ApiBed, *, reason: str, count: int = 1, node: str = "") -> list[dict[str, Any]]:
    """Return the attempts once at least ``count`` of them are told; the writer works when the answer is out already."""
    deadline = time.monotonic() + _SECONDS
    while True:
        found = attempts_of(api, reason=reason, node=node)
        if sum(one["count"] for one in found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def test_a_known_machine_is_told_by_its_name_and_counted(api: ApiBed, bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    machine.enroll(admission="Refused")
    for _unused in range(2):
        refused(machine.ask)
    (found,) = attempts(api, reason="IDENTITY_REFUSED", node=machine.name, count=2)
    assert (found["machine"], found["count"]) == (machine.identity()["metadata"]["name"], 2)
    assert found["message"].startswith("expected an approved identity")
    assert found["correlation_id"] == bed.last_refusal("key")["correlation_id"]
    events = api.get("events", "--namespace=default", f"--field-selector=involvedObject.name={found['name']}")["items"]
    assert [(event["reason"], event["type"], event["count"]) for event in events] == [("IdentityRefused", "Warning", 2)]
    assert "IDENTITY_REFUSED" in api.kubectl("describe", KIND, found["name"])


def test_an_unknown_machine_is_told_by_the_key_that_it_proved(api: ApiBed, machines: Machines) -> None:
    machine = machines(enroll=False)
    refused(machine.ask)
    ek = machine.tpm.ek.public.spki_sha256()
    (found,) = attempts(api, reason="IDENTITY_UNKNOWN", node=f"ek-{ek[:20]}")
    assert (found["ek_sha256"], found["node"]) == (ek, "")


def test_strangers_share_one_object(api: ApiBed, machines: Machines) -> None:
    def guess(bound: Any) -> Any:
        return dataclasses.replace(bound, proof=b"\x03" * 32)

    before = sum(one["count"] for one in attempts_of(api, reason="ACTIVATION_NOT_PROVEN"))
    for machine in (machines(), machines()):
        refused(lambda machine=machine: machine.attack(Attack(bound=guess)))
    (found,) = attempts(api, reason="ACTIVATION_NOT_PROVEN", count=before + 2)
    assert (found["machine"], found["node"], found["ek_sha256"]) == ("stranger", "", "")


def test_a_list_reads_well(api: ApiBed, machines: Machines) -> None:
    machine = machines()
    machine.enroll(admission="Refused")
    refused(machine.ask)
    attempts(api, reason="IDENTITY_REFUSED", node=machine.name)
    header, *lines = [line.split() for line in api.kubectl("get", "nja").splitlines()]
    assert header == ["NAME", "MACHINE", "NODE", "REASON", "COUNT", "LAST", "NEXT"]
    (shown,) = [line for line in lines if machine.name in line and "IDENTITY_REFUSED" in line]
    assert " ".join(shown).endswith(Reason.IDENTITY_REFUSED.value.command)


def test_a_refusal_needs_no_attempt_to_be_written(api: ApiBed, bed: ServiceBed, machines: Machines) -> None:
    """Without the right to write them the answers are the same, and the log says once what is missing."""
    role = api.get("clusterrole", "attested:key-service")
    stripped = {**role, "rules": [rule for rule in role["rules"] if "joinattempts" not in rule["resources"]]}
    machine, stranger = machines(), machines(enroll=False)
    replace_role(api, stripped)
    try:
        refused(stranger.ask)
        assert machine.ask().public.node_name == machine.name
        deadline = time.monotonic() + _SECONDS
        while not (said := [line for line in bed.lines("key") if line.get("what") == "attempts"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert {line["reason"] for line in said} == {"API_FORBIDDEN"}
    finally:
        replace_role(api, role)
    ek = stranger.tpm.ek.public.spki_sha256()
    assert attempts(api, reason="IDENTITY_UNKNOWN", node=f"ek-{ek[:20]}")  # what was not written waited


def replace_role(api: ApiBed, role: dict[str, Any]) -> None:
    kept = {name: role["metadata"][name] for name in ("name",)}
    api.apply({**role, "metadata": kept, "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"})


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        pytest.param(("create", "events", "-n", "default"), "yes", id="it may write events of cluster-wide objects"),
        pytest.param(("create", "events", "-n", "kube-system"), "no", id="not those of another namespace"),
        pytest.param(("list", "events", "-n", "default"), "no", id="and reads none"),
        pytest.param(("patch", "nodeidentities"), "no", id="it changes nobody's identity"),
    ],
)
def test_what_the_key_service_may(api: ApiBed, words: tuple[str, ...], allowed: str) -> None:
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    assert allowed in api.kubectl("auth", "can-i", *words, user="key-service", check=False).split()
