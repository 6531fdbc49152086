# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S14: what a machine was given is used again: by another, elsewhere, later, for another name, or as a token."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import Expected, open_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Exchanged, Machine
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import TicketMaterial
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

    Machines = Callable[..., Machine]

THREAT = Threat(
    id="S14",
    title="Token stolen and used again",
    case="kubeadm's, k3s's and Talos' tokens serve many times",
    bed="api",
    stops=(
        ("services/received_ticket.py step 1", "TICKET_SIGNATURE"),
        ("services/received_ticket.py step 3", "TICKET_NOT_OURS"),
        ("services/received_ticket.py step 3", "TICKET_EXPIRED"),
        ("services/received_ticket.py step 5", "SEAL_UNOPENABLE"),
    ),
)


def recorded(machine: Machine) -> tuple[Exchanged, Expected]:
    exchanged = machine.attack(Attack())
    expected = Expected(
        cluster_id=machine.bed.bundle.cluster_id,
        node_name=machine.name,
        disk_id="",
        binding=exchanged.answer.binding,
        kubelet_key=machine.store.kubelet_key(),
    )
    return exchanged, expected


def opened(machine: Machine, exchanged: Exchanged, expected: Expected, **changes: Any) -> TicketMaterial:
    good = {
        "secret": exchanged.answer.secret,
        "one_time_key": exchanged.answer.one_time_key,
        "now": SystemClock().now(),
        **changes,
    }
    pins = JoinCaPins.from_pem(machine.bed.bundle.join_ca_certificate)
    return open_ticket(exchanged.response, expected=expected, pins=pins, **good)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"secret": bytes(32)}, "SEAL_UNOPENABLE", id="on another machine, whose TPM opens no credential"),
        pytest.param(
            {"one_time_key": OneTimeKey.generate()}, "SEAL_UNOPENABLE", id="on the same machine after another boot"
        ),
        pytest.param({"now": SystemClock().now() + timedelta(hours=1)}, "TICKET_EXPIRED", id="after its time"),
    ],
)
def test_a_recorded_ticket(machines: Machines, changes: dict[str, Any], code: str) -> None:
    machine = machines()
    exchanged, expected = recorded(machine)
    assert opened(machine, exchanged, expected).public.node_name == machine.name
    assert code_of(lambda: opened(machine, exchanged, expected, **changes)) == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"node_name": "cp-1"}, "TICKET_NOT_OURS", id="for another name"),
        pytest.param({"disk_id": "33333333-3333-4333-8333-333333333333"}, "TICKET_NOT_OURS", id="for another disk"),
        pytest.param({"binding": bytes(32)}, "TICKET_SIGNATURE", id="in another exchange"),
    ],
)
def test_a_ticket_of_another(machines: Machines, changes: dict[str, Any], code: str) -> None:
    machine = machines()
    exchanged, expected = recorded(machine)
    assert opened(machine, exchanged, expected)
    assert code_of(lambda: opened(machine, exchanged, replace(expected, **changes))) == code


def test_its_certificate_registers_one_node(api: ApiBed, machines: Machines) -> None:
    """Who steals certificate and key is that node, for 72 h, and no other."""
    machine = machines()
    material = machine.ask()
    (api.directory / "stolen.crt").write_bytes(material.public.kubelet_certificate)
    (api.directory / "stolen.key").write_bytes(material.kubelet_key.reveal())
    assert f"system:node:{machine.name}" in api.kubectl("auth", "whoami", user="stolen")
    own = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}})
    assert "created" in api.kubectl("create", "-f", "-", stdin=own, user="stolen")
    other = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cp-1"}})
    assert "forbidden" in api.kubectl("create", "-f", "-", stdin=other, user="stolen", check=False).lower()


TOKEN = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "bootstrap.kubernetes.io/token",
    "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
    "stringData": {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
    },
}


def status_of(api: ApiBed, method: str, path: str, **headers: str) -> int:
    asked = urllib.request.Request(api.server + path, data=b"{}" if method == "POST" else None, headers=headers)
    context = ssl.create_default_context(cafile=str(api.directory / "ca.crt"))
    if not headers.get("Authorization"):
        context.load_cert_chain(api.directory / "admin.crt", api.directory / "admin.key")
    try:
        return int(urllib.request.urlopen(asked, context=context, timeout=10).status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/nodes", id="reading"),
        pytest.param("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", id="asking for a certificate"),
    ],
)
def test_a_bootstrap_token_opens_nothing(api: ApiBed, method: str, path: str) -> None:
    """Even a hand-made one."""
    api.apply(TOKEN)
    assert status_of(api, "GET", "/api/v1/nodes") == 200
    bearer = {"Authorization": "Bearer abcdef.0123456789abcdef", "Content-Type": "application/json"}
    assert status_of(api, method, path, **bearer) == 401


def test_no_token_is_left_behind_by_a_join(api: ApiBed, machines: Machines) -> None:
    made = {one["metadata"]["name"] for one in api.get("secrets", "-A")["items"]}
    assert machines().ask()
    assert {one["metadata"]["name"] for one in api.get("secrets", "-A")["items"]} == made
