# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request a ticket from every address of every known join service but this machine's own, each at most once a call.

    connect (pinned join CA, E1) → Challenge → answer on the TPM (E2) → IssueJoinTicket → open the ticket

`retry_policy.py` decides by reason what may be tried again, and how soon; the caller waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .._deps.crypto import hashes, serialization, x509
from .._deps.grpc import grpc
from ..core.host import SystemRandom
from ..errors import AttestedError, TransportError
from ..evidence.challenge import BindingContext, Challenge, ChallengeRequest, answer
from ..policy.identity import Role
from ..proto.messages import message_class, method_path, parse
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.client import connect, parse_endpoint, requested_pause
from .handshake_evidence import DoorkeeperIssuer
from .join_endpoints import Favourite, SystemResolver, Targets
from .received_ticket import Expected, read_ticket
from .retry_policy import Outlook, is_of_this_machine, most_relevant, outlook

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..core.host import Clock, Random
    from ..evidence.evidence import EventLogs
    from ..keyservice.master import SecretBytes
    from ..transport.client import AttestedConnection
    from ..transport.pins import JoinCaPins
    from .handshake_evidence import Attesting
    from .join_endpoints import Resolver, Target
    from .received_ticket import ClosedTicket, TicketMaterial
    from .ticket_store import TicketStore

CHALLENGE = method_path("attested.v1.Attestation", "Challenge")
ISSUE_JOIN_TICKET = method_path("join.API", "IssueJoinTicket")
REATTEST = method_path("attested.v1.Attestation", "Reattest")
BINDING_METADATA = "attested-binding-bin"

CALL_SECONDS = 30.0
_CORRELATION = "attested-correlation-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The purpose of a call in words (``what``), and the reason if the cluster refuses it."""

    what: str
    refused: Reason


TICKET = Wanted(what="a ticket", refused=Reason.TICKET_REFUSED)
EVIDENCE = Wanted(what="the evidence to be taken", refused=Reason.EVIDENCE_REFUSED)

Answer = TypeVar("Answer")
Tried: TypeAlias = "Callable[[str, AttestedError | None], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """The settings of a node that requests a ticket.

    ``endpoints``: host:port of join services or of load balancers before them, in any order. ``own_addresses``: names
    and addresses of this machine. ``disk_id``: the assigned disk id, empty before the first ticket. ``role``: the
    requested role; the identity that the site registered decides.
    """

    endpoints: tuple[str, ...]
    pins: JoinCaPins
    cluster_id: bytes
    node_name: str
    disk_id: str = ""
    own_addresses: frozenset[str] = frozenset()
    role: Role = Role.WORKER


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMachine:
    """This machine: its attester, a reader of its event logs, its ticket store, its clock and its resolver.

    A caller that keeps this object keeps ``favourite`` from one call to the next.
    """

    attester: Attesting
    read_logs: Callable[[], EventLogs]
    store: TicketStore
    clock: Clock
    resolver: Resolver = field(default_factory=SystemResolver)
    random: Random = field(default_factory=SystemRandom)
    favourite: Favourite = field(default_factory=Favourite)


def fetch_ticket(
    config: JoinConfig, machine: JoinMachine, *, itself: bool = False, tried: Tried | None = None
) -> TicketMaterial:
    """Return a ticket from the first join service that issues one; ``tried`` receives each target and its error.

    ``itself``: call this machine's own service too, last. A control plane that renews its ticket does so.

    Raises JOIN_SERVICES_UNKNOWN if the endpoints name only this machine, a fault of this machine at once, and otherwise
    the most relevant error of all targets (`most_relevant`), which quotes the other ones.
    """
    _target, material = first_answer(
        targets(config, machine),
        lambda target: request_ticket(target, config, machine),
        release=machine.attester.release,
        itself=itself,
        tried=tried,
    )
    return material


def fetch_closed_ticket(config: JoinConfig, machine: JoinMachine, *, itself: bool = False) -> ClosedTicket:
    """Return a ticket as `fetch_ticket` does, with its secrets still sealed: another process opens them."""
    _target, closed = first_answer(
        targets(config, machine),
        lambda target: request_sealed_ticket(target, config, machine),
        release=machine.attester.release,
        itself=itself,
    )
    return closed


def targets(config: JoinConfig, machine: JoinMachine) -> Targets:
    """Return the targets that ``machine`` may call."""
    return Targets(
        endpoints=config.endpoints,
        own=config.own_addresses,
        parse=parse_endpoint,
        resolver=machine.resolver,
        random=machine.random,
        favourite=machine.favourite,
    )


def first_answer(
    targets: Targets,
    attempt: Callable[[str], Coroutine[Any, Any, Answer]],
    *,
    release: Callable[[], None],
    itself: bool = False,
    tried: Tried | None = None,
) -> tuple[Target, Answer]:
    """Return the first answer of one round and the target that gave it; each attempt has its own timeout.

    ``release`` is called after each attempt, when none of its threads runs any more.
    """
    failures: list[tuple[str, AttestedError]] = []
    for target in targets.round(itself=itself):
        error: AttestedError | None = None
        try:
            answered = _attempt(target, attempt, release)
        except AttestedError as caught:
            error = caught
        if tried is not None:
            tried(str(target), error)
        targets.favourite.note(target, decided=error is None or outlook(error) is Outlook.REFUSED)
        if error is None:
            return target, answered
        if is_of_this_machine(error):
            raise error
        failures.append((str(target), error))
    if not failures:
        raise TransportError(
            f"expected the join service of another machine, got {list(targets.endpoints)}",
            reason=Reason.JOIN_SERVICES_UNKNOWN,
        )
    raise most_relevant(failures)


def _attempt(
    target: Target, attempt: Callable[[str], Coroutine[Any, Any, Answer]], release: Callable[[], None]
) -> Answer:
    if target.unresolved is not None:
        raise target.unresolved
    try:
        return asyncio.run(attempt(target.dialled))  # returns after its threads have ended
    finally:
        release()


async def request_ticket(endpoint: str, config: JoinConfig, machine: JoinMachine) -> TicketMaterial:
    """Return a ticket from one endpoint."""
    return (await request_sealed_ticket(endpoint, config, machine)).opened()


async def request_sealed_ticket(endpoint: str, config: JoinConfig, machine: JoinMachine) -> ClosedTicket:
    """Return a ticket from one endpoint, its secrets still sealed."""
    issuer = DoorkeeperIssuer(machine.attester)
    async with connect(
        endpoint, pins=config.pins, cluster_id=config.cluster_id, issuer=issuer, clock=machine.clock
    ) as connection:
        return await _converse(connection, config, machine)


def push_evidence(config: JoinConfig, machine: JoinMachine) -> tuple[str, datetime]:
    """Send fresh evidence to the first join service that accepts it; return which, and when the next is overdue.

    A control plane calls its own service last: its key service judges its TPM like any other. Raises like
    `fetch_ticket`.
    """
    target, due = first_answer(
        targets(config, machine),
        lambda one: reattest(one, config, machine),
        release=machine.attester.release,
        itself=True,
    )
    return str(target), due


async def reattest(endpoint: str, config: JoinConfig, machine: JoinMachine) -> datetime:
    """Send fresh evidence of this locked machine to one endpoint; return when the next one is overdue.

    Raises EVIDENCE_REFUSED if the cluster refuses the evidence, and the same errors of the channel as for a ticket.
    """
    attester = machine.attester
    async with connect(
        endpoint,
        pins=config.pins,
        cluster_id=config.cluster_id,
        issuer=DoorkeeperIssuer(attester),
        clock=machine.clock,
    ) as connection:
        introduction = await asyncio.to_thread(_introduction, attester)
        challenge = Challenge.parse(await call(connection, CHALLENGE, introduction.to_bytes(), wanted=EVIDENCE))
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
        taken = await call(connection, REATTEST, request, metadata=metadata, wanted=EVIDENCE)
        response = parse("attested.v1.ReattestResponse", taken)
        return datetime.fromtimestamp(response.due_unix_seconds, UTC)


async def _converse(connection: AttestedConnection, config: JoinConfig, machine: JoinMachine) -> ClosedTicket:
    attester = machine.attester
    introduction = await asyncio.to_thread(_introduction, attester)
    challenge = Challenge.parse(await call(connection, CHALLENGE, introduction.to_bytes()))
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
    closed = read_ticket(
        await call(connection, ISSUE_JOIN_TICKET, request, metadata=metadata),
        expected=Expected(
            cluster_id=config.cluster_id,
            node_name=config.node_name,
            disk_id=config.disk_id,
            binding=given.binding,
            kubelet_key=key,
            role=config.role,
        ),
        pins=config.pins,
        secret=given.secret,
        one_time_key=given.one_time_key,
        now=machine.clock.now(),
    )
    return replace(closed, registers=given.bound.evidence.pcrs)


def _introduction(attester: Attesting) -> ChallengeRequest:
    """Return the keys of this machine; loads them if they are not loaded yet."""
    ek = attester.ek
    return ChallengeRequest(ek_public=ek.public, ek_certificates=ek.certificates, ak_public=attester.ak.public)


def _request(config: JoinConfig, logs: EventLogs, key: SecretBytes) -> bytes:
    message = message_class("join.IssueJoinTicketRequest")(
        disk_uuid=config.disk_id,
        certificate_request=kubelet_request(key, config.node_name),
        is_control_plane=config.role is Role.CONTROL_PLANE,
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
    connection: AttestedConnection,
    method: str,
    request: bytes,
    metadata: tuple[tuple[str, bytes], ...] = (),
    *,
    wanted: Wanted = TICKET,
) -> bytes:
    """Return the answer to one unary call over an attested connection; raises `TransportError` about ``wanted``."""
    try:
        return bytes(await connection.channel().unary_unary(method)(request, timeout=CALL_SECONDS, metadata=metadata))
    except grpc.aio.AioRpcError as error:
        raise connection.error or _translated(error, wanted) from error


def _translated(error: Any, wanted: Wanted) -> TransportError:
    """Return the error for a gRPC status; the service's log has the details under the correlation id."""
    status, refused = error.code(), {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
    trailing = dict(error.trailing_metadata() or ())
    story = f"{error.details()!r} (correlation id {trailing.get(_CORRELATION, 'none')})"
    if status in refused:
        return TransportError(f"expected {wanted.what}, got {story}", reason=wanted.refused, retryable=True)
    if status in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}:
        return TransportError(f"expected {wanted.what}, got {story}", reason=Reason.JOIN_REQUEST_NOT_UNDERSTOOD)
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        later = TransportError(f"expected {wanted.what}, got {story}", reason=Reason.JOIN_SERVICE_BUSY, retryable=True)
    else:
        later = TransportError(
            f"expected an answer, got {status.name}: {story}", reason=Reason.JOIN_SERVICE_UNAVAILABLE, retryable=True
        )
    later.retry_after_seconds = requested_pause(trailing)
    return later
