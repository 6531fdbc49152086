# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking for a ticket: every known join service in turn, never itself, each at most once a call.

    connect (pinned join CA, E1) → Challenge → answer on the TPM (E2) → IssueJoinTicket → open the ticket

What may be tried again says `pause_before_retry`, by reason; the waiting itself is the caller's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .._deps.crypto import hashes, serialization, x509
from .._deps.grpc import grpc
from ..atls.client import connect, parse_endpoint
from ..attestation import BindingContext, Challenge, ChallengeRequest, Purpose, answer
from ..errors import AttestedError, TransportError
from ..proto import message_class, method_path, parse
from ..reasons import Reason
from .doorkeeper import DoorkeeperIssuer
from .ticket import Expected, open_ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..atls import JoinCaPins
    from ..atls.client import AttestedConnection
    from ..attestation import EventLogs
    from ..keys import SecretBytes
    from ..system import Clock
    from .doorkeeper import Attester
    from .store import TicketStore
    from .ticket import TicketMaterial

CHALLENGE = method_path("attested.v1.Attestation", "Challenge")
ISSUE_JOIN_TICKET = method_path("join.API", "IssueJoinTicket")
REATTEST = method_path("attested.v1.Attestation", "Reattest")
BINDING_METADATA = "attested-binding-bin"

CALL_SECONDS = 30.0
_CORRELATION = "attested-correlation-id"
_RETRY = "attested-retry-after-milliseconds"
_LONGEST_PAUSE_SECONDS = 60.0

_PAUSES = {
    # nobody there yet, or not ready: soon
    Reason.PEER_UNREACHABLE: 2.0,
    Reason.CONNECTION_TIMEOUT: 2.0,
    Reason.CONNECTION_CLOSED: 2.0,
    Reason.JOIN_SERVICE_BUSY: 2.0,
    Reason.JOIN_SERVICE_UNAVAILABLE: 5.0,
    Reason.JOIN_SERVICES_UNKNOWN: 30.0,
    Reason.TPM_BUSY: 2.0,
    # a person must do something, and then it goes on by itself
    Reason.TICKET_REFUSED: 30.0,
    Reason.JOIN_CA_MISMATCH: 30.0,
    Reason.JOIN_CERTIFICATE_EXPIRED: 30.0,
    Reason.TICKET_EXPIRED: 30.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """What a node knows before it asks.

    ``endpoints``: host:port of join services, in the order to ask; ``own_addresses``: hosts that are this machine;
    ``disk_id``: the assigned one, empty before the first ticket.
    """

    endpoints: tuple[str, ...]
    pins: JoinCaPins
    cluster_id: bytes
    node_name: str
    disk_id: str = ""
    own_addresses: frozenset[str] = frozenset()

    def others(self) -> tuple[str, ...]:
        """Return the endpoints that are not this machine; raises JOIN_SERVICES_UNKNOWN where none is left."""
        found = tuple(one for one in self.endpoints if parse_endpoint(one)[0] not in self.own_addresses)
        if not found:
            raise TransportError(
                f"expected the join service of another machine, got {list(self.endpoints)}",
                reason=Reason.JOIN_SERVICES_UNKNOWN,
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMachine:
    """This machine: its attester, its event logs as they are now, its ticket store, its clock."""

    attester: Attester
    read_logs: Callable[[], EventLogs]
    store: TicketStore
    clock: Clock


def fetch_ticket(
    config: JoinConfig, machine: JoinMachine, *, tried: Callable[[str, AttestedError | None], None] | None = None
) -> TicketMaterial:
    """Return a ticket from the first endpoint that gives one; ``tried`` hears of each endpoint and its error.

    Raises the most telling error of all endpoints: a refusal before a foreign service before one that is away.
    """
    errors: list[tuple[str, AttestedError]] = []
    for endpoint in config.others():
        try:
            material = asyncio.run(ask(endpoint, config, machine))
        except AttestedError as error:
            errors.append((endpoint, error))
            if tried is not None:
                tried(endpoint, error)
            continue
        if tried is not None:
            tried(endpoint, None)
        return material
    raise most_telling(errors)


def pause_before_retry(error: AttestedError) -> float | None:
    """Return after how many seconds asking again makes sense, or None where it never does."""
    return error.retry_after_seconds or _PAUSES.get(error.reason)


def most_telling(errors: list[tuple[str, AttestedError]]) -> AttestedError:
    """Return the error that a person should see: one that never passes, else the one with the longest wait."""
    endpoint, error = max(errors, key=lambda pair: _PAUSES.get(pair[1].reason, float("inf")))
    others = ", ".join(f"{where}: {one.code}" for where, one in errors if where != endpoint)
    error.message = f"{endpoint}: {error.message}" + (f"; also {others}" if others else "")
    return error


async def ask(endpoint: str, config: JoinConfig, machine: JoinMachine) -> TicketMaterial:
    """Return a ticket from one endpoint."""
    issuer = DoorkeeperIssuer(machine.attester)
    async with connect(
        endpoint, pins=config.pins, cluster_id=config.cluster_id, issuer=issuer, clock=machine.clock
    ) as connection:
        return await _converse(connection, config, machine)


def push_evidence(config: JoinConfig, machine: JoinMachine) -> tuple[str, datetime]:
    """Send fresh evidence to the first join service that takes it; return which, and when the next is overdue.

    A control plane may ask itself: its key service judges its TPM like any other. Raises the most telling error.
    """
    errors: list[tuple[str, AttestedError]] = []
    for endpoint in sorted(config.endpoints, key=lambda one: parse_endpoint(one)[0] in config.own_addresses):
        try:
            return endpoint, asyncio.run(reattest(endpoint, config, machine))
        except AttestedError as error:
            errors.append((endpoint, error))
    raise most_telling(errors)


async def reattest(endpoint: str, config: JoinConfig, machine: JoinMachine) -> datetime:
    """Send fresh evidence of this locked machine to one endpoint; return when the next one is overdue."""
    attester = machine.attester
    async with connect(
        endpoint,
        pins=config.pins,
        cluster_id=config.cluster_id,
        issuer=DoorkeeperIssuer(attester),
        clock=machine.clock,
    ) as connection:
        asked = ChallengeRequest(
            ek_public=attester.ek.public, ek_certificates=attester.ek.certificates, ak_public=attester.ak.public
        )
        challenge = Challenge.parse(await call(connection, CHALLENGE, asked.to_bytes()))
        logs = machine.read_logs()
        request = bytes(message_class("attested.v1.ReattestRequest")(event_logs=logs.to_bytes()).SerializeToString())
        context = BindingContext(
            purpose=Purpose.VERIFY,
            cluster_id=config.cluster_id,
            request=request,
            exporter=connection.exporter,
            spki_sha256=connection.spki_sha256,
        )
        given = await asyncio.to_thread(
            answer, attester.tpm, challenge, context, ek=attester.ek, ak=attester.ak, logs=logs
        )
        metadata = ((BINDING_METADATA, given.bound.to_bytes()),)
        said = parse("attested.v1.ReattestResponse", await call(connection, REATTEST, request, metadata=metadata))
        return datetime.fromtimestamp(said.due_unix_seconds, UTC)


async def _converse(connection: AttestedConnection, config: JoinConfig, machine: JoinMachine) -> TicketMaterial:
    attester = machine.attester
    asked = ChallengeRequest(
        ek_public=attester.ek.public, ek_certificates=attester.ek.certificates, ak_public=attester.ak.public
    )
    challenge = Challenge.parse(await call(connection, CHALLENGE, asked.to_bytes()))
    logs, key = machine.read_logs(), machine.store.kubelet_key()
    request = _request(config, logs, key)
    context = BindingContext(
        purpose=Purpose.JOIN,
        cluster_id=config.cluster_id,
        request=request,
        exporter=connection.exporter,
        spki_sha256=connection.spki_sha256,
    )
    given = await asyncio.to_thread(answer, attester.tpm, challenge, context, ek=attester.ek, ak=attester.ak, logs=logs)
    metadata = ((BINDING_METADATA, given.bound.to_bytes()),)
    return open_ticket(
        await call(connection, ISSUE_JOIN_TICKET, request, metadata=metadata),
        expected=Expected(
            cluster_id=config.cluster_id,
            node_name=config.node_name,
            disk_id=config.disk_id,
            binding=given.binding,
            kubelet_key=key,
        ),
        pins=config.pins,
        secret=given.secret,
        one_time_key=given.one_time_key,
        now=machine.clock.now(),
    )


def _request(config: JoinConfig, logs: EventLogs, key: SecretBytes) -> bytes:
    message = message_class("join.IssueJoinTicketRequest")(
        disk_uuid=config.disk_id,
        certificate_request=kubelet_request(key, config.node_name),
        event_logs=logs.to_bytes(),
    )
    return bytes(message.SerializeToString())


def kubelet_request(key: SecretBytes, node_name: str) -> bytes:
    """Return the certificate request of a kubelet, DER."""
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{node_name}"),
        ]
    )
    signing: Any = serialization.load_pem_private_key(key.reveal(), password=None)
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(signing, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.DER)


async def call(
    connection: AttestedConnection, method: str, request: bytes, metadata: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    """Return the answer to one unary call over an attested connection; raises `TransportError`."""
    try:
        return bytes(await connection.channel().unary_unary(method)(request, timeout=CALL_SECONDS, metadata=metadata))
    except grpc.aio.AioRpcError as error:
        raise connection.error or _translated(error) from error


def _translated(error: Any) -> TransportError:
    """Turn a gRPC status into a reason of ours; the whole story stands in the service's log under the id."""
    status, refused = error.code(), {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
    trailing = dict(error.trailing_metadata() or ())
    story = f"{error.details()!r} (correlation id {trailing.get(_CORRELATION, 'none')})"
    if status in refused:
        return TransportError(f"expected a ticket, got {story}", reason=Reason.TICKET_REFUSED, retryable=True)
    if status in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}:
        return TransportError(f"expected a ticket, got {story}", reason=Reason.JOIN_REQUEST_NOT_UNDERSTOOD)
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        busy = TransportError(f"expected a ticket, got {story}", reason=Reason.JOIN_SERVICE_BUSY, retryable=True)
        busy.retry_after_seconds = _told_pause(trailing)
        return busy
    return TransportError(
        f"expected an answer, got {status.name}: {story}", reason=Reason.JOIN_SERVICE_UNAVAILABLE, retryable=True
    )


def _told_pause(trailing: dict[str, Any]) -> float:
    """Return how long the service asks us to wait, never more than a minute; 0 where it does not say."""
    told = str(trailing.get(_RETRY, ""))
    return min(int(told) / 1000, _LONGEST_PAUSE_SECONDS) if told.isascii() and told.isdigit() else 0.0
