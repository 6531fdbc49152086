# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of the key service over its unix socket.

The join service keeps its connections open: a new connection for each call costs both sides more than the call. A call
may be sent again over another connection. A challenge can be answered once only, so a repeated release is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.unix_rpc import RESPONSE, Caller, Service, answer_of, call_and_wait

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


SOCKET = "/run/attested/key-service.sock"
REQUEST = "attested.v1.KeyServiceRequest"
CALL_SECONDS = 20.0

_KEEP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The attested connection behind a call, as the relay reports it (see `atls.claims.Claims`).

    ``source``: the peer's address as rate limits count it (`core.rate.source_of`). It takes part in no decision.
    """

    exporter: bytes
    spki_sha256: bytes
    peer_nonce: bytes
    evidence: bytes
    source: str = ""

    def to_message(self) -> Any:
        """Return the protobuf message."""
        return message_class("attested.v1.Channel")(
            exporter=self.exporter,
            spki_sha256=self.spki_sha256,
            peer_nonce=self.peer_nonce,
            evidence=self.evidence,
            source=self.source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketAnswer:
    """A ticket with its signature, and the node's name for the log."""

    ticket: bytes
    signature: bytes
    node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAnswer:
    """Whether the key service can release tickets, its state, and its cluster (empty while closed).

    ``metrics``: the metrics in the Prometheus text format.
    """

    ready: bool
    state: str
    cluster_id: bytes
    metrics: bytes = b""


class AsyncKeyClient:
    """The join service's client; every call raises the key service's refusal, or KEY_SERVICE_UNREACHABLE."""

    def __init__(self, path: str | Path = SOCKET, *, timeout_seconds: float = CALL_SECONDS) -> None:
        """Call the socket at ``path``."""
        self._caller = Caller(_service(path, timeout_seconds), response_name=RESPONSE, keep=_KEEP)

    async def challenge(self, channel: Channel, request: bytes, *, correlation_id: str) -> bytes:
        """Return the `ChallengeResponse` for a `ChallengeRequest`, both as bytes."""
        message = _request(correlation_id)
        message.challenge.channel.CopyFrom(channel.to_message())
        message.challenge.request = request
        return bytes((await self._caller.call(message)).challenge)

    async def release(self, channel: Channel, request: bytes, binding: bytes, *, correlation_id: str) -> TicketAnswer:
        """Return the ticket for a request (its bytes as sent) and its `Binding`."""
        message = _request(correlation_id)
        message.release.channel.CopyFrom(channel.to_message())
        message.release.request = request
        message.release.binding = binding
        answer = (await self._caller.call(message)).ticket
        return TicketAnswer(ticket=answer.ticket, signature=answer.signature, node_name=answer.node_name)

    async def reattest(
        self, channel: Channel, request: bytes, binding: bytes, *, correlation_id: str
    ) -> tuple[bytes, str]:
        """Return the `ReattestResponse` for a request (its bytes as sent) and its `Binding`, and the node's name."""
        message = _request(correlation_id)
        message.reattest.channel.CopyFrom(channel.to_message())
        message.reattest.request = request
        message.reattest.binding = binding
        answer = (await self._caller.call(message)).reattested
        return bytes(answer.response), str(answer.node_name)

    async def server_certificate(self, request: bytes, *, correlation_id: str) -> bytes:
        """Return the PEM chain (leaf, join CA) for a certificate request in DER."""
        message = _request(correlation_id)
        message.server_certificate.certificate_request = request
        return bytes((await self._caller.call(message)).certificate_chain)

    async def health(self) -> HealthAnswer:
        """Return the state of the key service."""
        return _health((await self._caller.call(_health_request())).health)


class KeyClient:
    """A blocking client, for modules and `attested status`."""

    def __init__(self, path: str | Path = SOCKET, *, timeout_seconds: float = CALL_SECONDS) -> None:
        """Call the socket at ``path``."""
        self._service = _service(path, timeout_seconds)

    def health(self) -> HealthAnswer:
        """Return the state of the key service."""
        return _health(answer_of(call_and_wait(self._service, _health_request())).health)


def _service(path: str | Path, timeout_seconds: float) -> Service:
    return Service(
        path=path,
        name="the key service",
        absent=Reason.KEY_SERVICE_UNREACHABLE,
        timeout_seconds=timeout_seconds,
    )


def _request(correlation_id: str) -> Any:
    return message_class(REQUEST)(correlation_id=correlation_id)


def _health_request() -> Any:
    message = _request("")
    message.health.SetInParent()
    return message


def _health(message: Any) -> HealthAnswer:
    return HealthAnswer(
        ready=message.ready, state=message.state, cluster_id=message.cluster_id, metrics=message.metrics
    )


# Client of the key service's socket for root: read its record of the policy, or begin the record again.

POLICY_SOCKET = "/run/attested/key-service-policy.sock"
POLICY_REQUEST = "attested.v1.PolicyRequest"
POLICY_RESPONSE = "attested.v1.PolicyResponse"
POLICY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """The policy record of a control plane; ``reason`` and ``message`` say why it is unusable, else they are empty.

    With an unusable record all machines are refused. ``revoked`` also has the revocations of an unusable record, so
    that the site can sign them again.
    """

    generation: int
    revoked: tuple[str, ...]
    reason: str
    message: str
    changed: bool = False


class PolicyClient:
    """The client, for modules; its calls raise KEY_SERVICE_UNREACHABLE."""

    def __init__(self, path: str | Path = POLICY_SOCKET, *, timeout_seconds: float = POLICY_SECONDS) -> None:
        """Call the socket at ``path``."""
        self._service = Service(
            path=path,
            name="the key service",
            absent=Reason.KEY_SERVICE_UNREACHABLE,
            timeout_seconds=timeout_seconds,
        )

    def state(self) -> RecordState:
        """Return the record."""
        return self._call(b"")

    def adopt(self, document: Mapping[str, Any]) -> RecordState:
        """Begin the record with the site's signed policy; raises `PolicyError` if the key service refuses it."""
        state = self._call(json.dumps(dict(document)).encode())
        if state.reason:
            raise PolicyError(state.message, reason=Reason.__members__.get(state.reason, Reason.INTERNAL))
        return state

    def _call(self, adopt: bytes) -> RecordState:
        request = message_class(POLICY_REQUEST)(adopt=adopt)
        return _state(parse(POLICY_RESPONSE, call_and_wait(self._service, request)))


def _state(message: Any) -> RecordState:
    return RecordState(
        generation=message.generation,
        revoked=tuple(message.revoked),
        reason=message.refusal.code,
        message=message.refusal.message,
        changed=message.changed,
    )
