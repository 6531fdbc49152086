# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of the key service's socket: each is dispatched, decided, recorded and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import AttestedError
from ..reasons import Reason
from ..transport.unix_rpc import RESPONSE, RpcCall, RpcSchema, RpcService
from .auditing import refusal_of
from .ca import JoinCa, sign_server_certificate
from .client import REQUEST, Channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Clock
    from ..core.logs import Line, Log
    from ..core.metrics import Metrics
    from .audit_log import AuditTrail
    from .join_attempts import RefusalReporter
    from .key_bundle import KeyBundle
    from .reattest import Reattester
    from .releaser import Releaser

_MAX_SOURCE = 64
_SCHEMA = RpcSchema(name="key", request=REQUEST, response=RESPONSE, question="call", unlogged=frozenset({"health"}))


class KeyService(RpcService):
    """Answers the calls of the socket: converts messages, and calls `Releaser` and `Reattester`, which decide."""

    def __init__(
        self,
        releaser: Releaser,
        *,
        bundle: KeyBundle,
        clock: Clock,
        log: Log,
        reporter: RefusalReporter,
        audit: AuditTrail,
        reattester: Reattester,
        metrics: Metrics | None,
    ) -> None:
        """Answer with ``releaser`` and the join CA of ``bundle``; each call is one line of ``log``.

        A refusal is passed to ``reporter`` after the decision. Every decision is recorded in ``audit`` before the
        answer. The call health returns ``metrics``, unless they are None.
        """
        answers = {
            "challenge": self._challenge,
            "release": self._release,
            "reattest": self._reattest,
            "server_certificate": self._server_certificate,
            "health": self._health,
        }
        super().__init__(_SCHEMA, answers, log=log)
        self._metrics = metrics
        self._audit = audit
        self._reattester = reattester
        self._releaser = releaser
        self._bundle = bundle
        self._clock = clock
        self._reporter = reporter

    def respond(self, asked: RpcCall) -> bytes:
        """Return the response to a call after its decision is recorded; raises the refusal."""
        if asked.kind == "health":
            return super().respond(asked)
        try:
            answer = super().respond(asked)
        except AttestedError as error:
            self._record(asked, refusal_of(error))
            self._reporter.report(error, asked.line.fields, now=self._clock.now())
            raise
        except Exception as error:
            self._record(asked, {"reason": Reason.INTERNAL.name, "detail": type(error).__name__})
            raise
        if asked.kind != "challenge":  # a challenge grants nothing, and strangers can request many
            self._record(asked, None)
        return answer

    def _record(self, asked: RpcCall, refusal: dict[str, str] | None) -> None:
        kind, fields = asked.kind, asked.line.fields
        self._audit.decided(kind or "unknown", fields, refusal=refusal, source=_source(kind, fields))

    def _challenge(self, asked: RpcCall, response: Any) -> None:
        call = asked.message
        response.challenge = self._releaser.challenge(call.request, source=_channel(call, asked.line).source)

    def _reattest(self, asked: RpcCall, response: Any) -> None:
        call, line = asked.message, asked.line
        channel = _channel(call, line)
        done = self._reattester.reattest(channel, call.request, call.binding, note=line.set, gone=asked.gone)
        line.set(node=done.node_name, profile=done.profile)
        response.reattested.node_name = done.node_name
        response.reattested.response = done.to_bytes()

    def _release(self, asked: RpcCall, response: Any) -> None:
        call, line = asked.message, asked.line
        channel = _channel(call, line)
        released = self._releaser.release(channel, call.request, call.binding, note=line.set, gone=asked.gone)
        line.set(
            node=released.node_name,
            profile=released.profile,
            role=released.role,
            repeated=released.repeated,
            superseded=released.superseded,
        )
        response.ticket.ticket = released.issued.ticket
        response.ticket.signature = released.issued.signature
        response.ticket.node_name = released.node_name

    def _server_certificate(self, asked: RpcCall, response: Any) -> None:
        ca = JoinCa(certificate=self._bundle.join_ca_certificate, private_key=self._bundle.join_ca_key.reveal())
        response.certificate_chain = sign_server_certificate(
            asked.message.certificate_request, ca=ca, cluster_id=self._bundle.cluster_id, now=self._clock.now()
        )

    def _health(self, _asked: RpcCall, response: Any) -> None:
        response.health.ready = True
        response.health.state = "open"
        response.health.cluster_id = self._bundle.cluster_id
        if self._metrics is not None:
            response.health.metrics = self._metrics.exposition()


def _source(kind: str | None, fields: Mapping[str, Any]) -> str:
    """Return the proven source of a refused call: a node, any other machine, or the join service; else "".

    An attacker can create and prove any number of endorsement keys, so all machines without a node share one source.
    """
    if kind == "server_certificate":
        return "the join service"
    if fields.get("proven") != "yes":
        return ""
    return str(fields.get("node") or "machines that no node is")


def _channel(call: Any, line: Line) -> Channel:
    """Return the relay's report of the connection, and log its source."""
    if call.channel.source:
        line.set(source=call.channel.source[:_MAX_SOURCE])
    return Channel(
        exporter=call.channel.exporter,
        spki_sha256=call.channel.spki_sha256,
        peer_nonce=call.channel.peer_nonce,
        evidence=call.channel.evidence,
        source=call.channel.source[:_MAX_SOURCE],
    )
