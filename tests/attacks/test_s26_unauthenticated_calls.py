# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S26: every call of every service by everybody who may not: no is the default, for a new call too."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.descriptors import DESCRIPTOR_SET_BASE64
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    CHALLENGE,
    ISSUE_JOIN_TICKET,
    call,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    make_certificate,
    new_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import (
    answer_of,
    frame,
    frame_length,
)
from ansible_collections.attested.kubernetes.tests.support.atls import HashIssuer, service_credentials
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.service_bed import another_user
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf import descriptor_pb2
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

THREAT = Threat(
    id="S26",
    title="Calls without the right credential",
    case="CVE-2026-1709",
    bed="api",
    stops=(
        ("transport/relay.py", "TLS_HANDSHAKE_FAILED"),
        ("transport/certificate.py", "PEER_CERTIFICATE_EXPIRED"),
        ("evidence/evidence.py", "MESSAGE_MALFORMED"),
        ("transport/certificate.py", "PEER_CERTIFICATE_MALFORMED"),
        ("transport/unix_rpc.py", "KEY_SERVICE_CALLER_UNKNOWN"),
    ),
)


def methods() -> list[str]:
    """Return every call of every service that our protocol files declare, and one that nobody wrote yet."""
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(DESCRIPTOR_SET_BASE64)).file
    declared = [
        f"/{file.package}.{service.name}/{method.name}"
        for file in files
        for service in file.service
        for method in service.method
    ]
    assert {CHALLENGE, ISSUE_JOIN_TICKET} <= set(declared)
    return [*declared, "/attested.v1.Admin/NotWrittenYet"]


@dataclass
class Caller:
    """A TLS client of pyOpenSSL with any certificate, or none."""

    chain: tuple[x509.Certificate, ...] = ()
    key: Any = None

    def knock(self, port: int) -> None:
        """Handshake, and read what the service says then."""
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_alpn_protos([b"h2"])
        if self.chain:
            context.use_certificate(self.chain[0])
            context.use_privatekey(self.key)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.settimeout(None)
            tls = SSL.Connection(context, plain)
            tls.set_connect_state()
            try:
                tls.do_handshake()
                tls.recv(1 << 16)
            except (SSL.Error, OSError):
                return


def verdicts(bed: ServiceBed, action: Callable[[], object]) -> list[str]:
    """Return what the join service wrote about connections that it did not serve."""
    before = len(bed.lines("join"))
    action()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        lines = [one for one in bed.lines("join")[before:] if one["event"] in {"peer_rejected", "connection_failed"}]
        if lines:
            assert not [one for one in bed.lines("join")[before:] if one["event"] == "call" and one["outcome"] == "ok"]
            return [one["reason"] for one in lines]
        time.sleep(0.05)
    return []


def kubelets(machine: Machine) -> Caller:
    material = machine.ask()
    key = x509.load_pem_x509_certificate(material.public.kubelet_certificate)
    private = serialization.load_pem_private_key(material.kubelet_key.reveal(), password=None)
    return Caller((key,), private)


def admins(api: ApiBed) -> Caller:
    certificate = x509.load_pem_x509_certificate((api.directory / "admin.crt").read_bytes())
    return Caller((certificate,), serialization.load_pem_private_key((api.directory / "admin.key").read_bytes(), None))


def services(bed: ServiceBed) -> Caller:
    """Another join service's own certificate, of our join CA."""
    ca = JoinCa(certificate=bed.bundle.join_ca_certificate, private_key=bed.bundle.join_ca_key.reveal())
    credentials = service_credentials(ca, cluster_id=bed.bundle.cluster_id)
    return Caller(credentials.chain, credentials.key)


def expired() -> Caller:
    key = new_key()
    old = datetime.now(UTC) - timedelta(days=400)
    return Caller((make_certificate(key, oid=EVIDENCE_OID, evidence=b"x", now=old),), key)


def test_certificates_without_evidence_are_not_served(
    api: ApiBed, bed: ServiceBed, machines: Callable[..., Machine]
) -> None:
    """Whoever certified them: no call is ever reached."""
    assert machines().ask()
    node = kubelets(machines())
    assert verdicts(bed, lambda: Caller().knock(bed.port)) == ["TLS_HANDSHAKE_FAILED"]
    callers = [node, admins(api), services(bed), expired()]
    said = [verdicts(bed, lambda one=one: one.knock(bed.port)) for one in callers]
    assert said == [*[["PEER_CERTIFICATE_MALFORMED"]] * 3, ["PEER_CERTIFICATE_EXPIRED"]]


@pytest.mark.parametrize("method", methods())
def test_every_call_without_good_evidence(bed: ServiceBed, machines: Callable[..., Machine], method: str) -> None:
    config = machines().config()

    async def ask() -> None:
        issuer = HashIssuer(lambda *_rest: b"\xff no evidence")
        pins = config.pins
        async with connect(bed.endpoint, pins=pins, cluster_id=config.cluster_id, issuer=issuer) as connection:
            await call(connection, method, b"")

    def knock() -> None:
        with pytest.raises(AttestedError):
            asyncio.run(ask())

    assert verdicts(bed, knock) == ["MESSAGE_MALFORMED"]


KINDS = [field.name for field in message_class(REQUEST).DESCRIPTOR.oneofs_by_name["call"].fields]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_the_key_service_by_another_user(bed: ServiceBed, kind: str) -> None:
    """Known by the user id that the kernel tells; the file's mode is opened for the test."""
    message = message_class(REQUEST)()
    getattr(message, kind).SetInParent()
    mode = bed.socket.stat().st_mode & 0o777
    bed.socket.chmod(0o666)
    try:
        with another_user():
            assert code_of(lambda: spoken(bed, message.SerializeToString())) == "KEY_SERVICE_CALLER_UNKNOWN"
    finally:
        bed.socket.chmod(mode)
    assert mode == 0o660


def spoken(bed: ServiceBed, message: bytes) -> object:
    """Return the answer to one message on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(20)
        link.connect(str(bed.socket))
        link.sendall(frame(message))
        stream = link.makefile("rb")
        return answer_of(stream.read(frame_length(stream.read(4))))


def test_root_is_answered(bed: ServiceBed) -> None:
    """The same messages by a user that may: what is not understood is refused, health is told."""
    message = message_class(REQUEST)()
    message.health.SetInParent()
    answer: Any = spoken(bed, message.SerializeToString())
    assert answer.health.ready
    assert code_of(lambda: spoken(bed, b"\x7a\x00")) == "MESSAGE_MALFORMED"


def test_a_node_has_no_say_in_identities_and_profiles(api: ApiBed, machines: Callable[..., Machine]) -> None:
    material = machines().ask()
    (api.directory / "some-node.crt").write_bytes(material.public.kubelet_certificate)
    (api.directory / "some-node.key").write_bytes(material.kubelet_key.reveal())
    said = {}
    for verb in ("create", "delete", "patch", "get", "list"):
        for kind in ("nodeidentities", "measurementprofiles"):
            words = ("auth", "can-i", verb, f"{kind}.attested-kubernetes.dev")
            said[verb, kind] = [
                "yes" in api.kubectl(*words, user=user, check=False).split() for user in ("admin", "some-node")
            ]
    assert list(said.values()) == [[True, False]] * 10
