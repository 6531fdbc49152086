# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of the key service's socket: each is dispatched, judged, recorded and answered."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, KeyServiceError
from ..proto.messages import message_class, parse
from ..reasons import Reason
from .auditing import refusal_of
from .ca import JoinCa, sign_server_certificate
from .client import Channel
from .framing import REQUEST, RESPONSE, refusal_answer
from .listener import caller_gone, stays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.host import Clock
    from ..core.logs import Line, Log
    from ..core.metrics import Metrics
    from .audit_trail import AuditTrail
    from .key_bundle import KeyBundle
    from .reattest import Reattester
    from .refusals import Teller
    from .releaser import Releaser

_WORKERS = 8
_MAX_SOURCE = 64


class KeyService:
    """Answers the calls of the socket; deciding is in `releaser` and below, this is the plumbing."""

    def __init__(
        self,
        releaser: Releaser,
        *,
        bundle: KeyBundle,
        clock: Clock,
        log: Log,
        teller: Teller,
        audit: AuditTrail,
        reattester: Reattester,
        metrics: Metrics | None,
    ) -> None:
        """Answer with ``releaser`` and the join CA of ``bundle``; each call is one line of ``log``.

        A refusal goes to ``teller`` once it is decided; every decision is in ``audit`` before it is answered. The
        health says ``metrics``, None where the site wants none.
        """
        self._metrics = metrics
        self._audit = audit
        self._reattester = reattester
        self._releaser = releaser
        self._bundle = bundle
        self._clock = clock
        self._log = log
        self._teller = teller
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="release")

    async def handle(self, data: bytes) -> bytes:
        """Answer one message of the socket; every error becomes a refusal."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data, caller_gone())

    def answer(self, data: bytes, gone: Callable[[], bool] = stays) -> bytes:
        """Answer one message in this thread; ``gone`` says whether anybody still waits for it."""
        try:
            request = parse(REQUEST, data)
            kind = request.WhichOneof("call")
            if kind == "health":
                return self._health()
            with self._log.request(f"key_{kind}", correlation_id=request.correlation_id) as line:
                return self._answer(kind, request, line, gone)
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - the decision is no; Log.request has written the story
            return refusal_answer(KeyServiceError(f"{type(error).__name__}", reason=Reason.INTERNAL))

    def close(self) -> None:
        """End the workers."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answer(self, kind: str | None, request: Any, line: Line, gone: Callable[[], bool]) -> bytes:
        try:
            answer = bytes(self._call(kind, request, line, gone).SerializeToString())
        except AttestedError as error:
            self._record(kind, line, refusal_of(error))
            self._teller.tell(error, line.fields, now=self._clock.now())
            raise
        except Exception as error:
            self._record(kind, line, {"reason": Reason.INTERNAL.name, "detail": type(error).__name__})
            raise
        if kind != "challenge":  # which gives nothing away, and strangers ask for many
            self._record(kind, line, None)
        return answer

    def _record(self, kind: str | None, line: Line, refusal: dict[str, str] | None) -> None:
        self._audit.decided(kind or "unknown", line.fields, refusal=refusal, source=_source(kind, line.fields))

    def _call(self, kind: str | None, request: Any, line: Line, gone: Callable[[], bool]) -> Any:
        response = message_class(RESPONSE)()
        if kind == "challenge":
            channel = _channel(request.challenge, line)
            response.challenge = self._releaser.challenge(request.challenge.request, source=channel.source)
        elif kind == "release":
            self._release(request.release, response, line, gone)
        elif kind == "reattest":
            self._reattest(request.reattest, response, line, gone)
        elif kind == "server_certificate":
            response.certificate_chain = self._server_certificate(request.server_certificate.certificate_request)
        else:
            raise KeyServiceError("expected a call that is known, got another", reason=Reason.MESSAGE_MALFORMED)
        return response

    def _reattest(self, call: Any, response: Any, line: Line, gone: Callable[[], bool]) -> None:
        done = self._reattester.reattest(_channel(call, line), call.request, call.binding, note=line.set, gone=gone)
        line.set(node=done.node_name, profile=done.profile)
        response.reattested.node_name = done.node_name
        response.reattested.response = done.to_bytes()

    def _release(self, call: Any, response: Any, line: Line, gone: Callable[[], bool]) -> None:
        channel = _channel(call, line)
        released = self._releaser.release(channel, call.request, call.binding, note=line.set, gone=gone)
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

    def _server_certificate(self, der: bytes) -> bytes:
        ca = JoinCa(certificate=self._bundle.join_ca_certificate, private_key=self._bundle.join_ca_key.reveal())
        return sign_server_certificate(der, ca=ca, cluster_id=self._bundle.cluster_id, now=self._clock.now())

    def _health(self) -> bytes:
        response = message_class(RESPONSE)()
        response.health.ready = True
        response.health.state = "open"
        response.health.cluster_id = self._bundle.cluster_id
        if self._metrics is not None:
            response.health.metrics = self._metrics.exposition()
        return bytes(response.SerializeToString())


def _source(kind: str | None, fields: Mapping[str, Any]) -> str:
    """Return who was refused, as far as that is proven: a node, any other machine, the join service; else nobody.

    Anybody can make endorsement keys and prove them, so all machines that are no node's share one source.
    """
    if kind == "server_certificate":
        return "the join service"
    if fields.get("proven") != "yes":
        return ""
    return str(fields.get("node") or "machines that no node is")


def _channel(call: Any, line: Line) -> Channel:
    """Return what the relay said of the connection; the log says where it came from."""
    if call.channel.source:
        line.set(source=call.channel.source[:_MAX_SOURCE])
    return Channel(
        exporter=call.channel.exporter,
        spki_sha256=call.channel.spki_sha256,
        peer_nonce=call.channel.peer_nonce,
        evidence=call.channel.evidence,
        source=call.channel.source[:_MAX_SOURCE],
    )
