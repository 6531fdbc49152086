# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claims of the attested peer of a call, found by the path of the relay's own socket.

The relay binds its end of each unix connection to a random path. grpcio reports that path as the peer of a call, and no
other process can have it. A call from any other peer is refused, so a forgotten check fails closed.
"""

from __future__ import annotations

import contextvars
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..core.rate import source_of_remote
from ..errors import Refusal
from ..reasons import Coarse, Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from .limits import Seat


_UNIX = "unix:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """One attested connection.

    ``evidence`` (E1) was accepted over ``peer_nonce`` (our nonce for the peer) and ``spki_sha256`` (of the peer's key).
    ``exporter`` binds this TLS channel (RFC 9266). The last three have 32 bytes each; all but ``exporter`` are empty if
    the server requests no evidence. ``remote`` is host:port; ``accepted_at`` is monotonic seconds. ``key`` names the
    key that signed the evidence; ``seat`` is the connection's place in the relay.
    """

    evidence: bytes
    peer_nonce: bytes
    spki_sha256: bytes
    exporter: bytes
    remote: str
    accepted_at: float
    key: bytes = b""
    seat: Seat | None = None

    @property
    def source(self) -> str:
        """The source of the peer's address for limits (`core.rate.source_of`)."""
        return source_of_remote(self.remote)

    def prove(self) -> None:
        """Report that a call of this peer was granted: its connection is kept, its key and source are remembered."""
        if self.seat is not None:
            self.seat.prove()


class Registry:
    """The claims of all open connections; written by the relay, read by the interceptor, on one event loop."""

    def __init__(self) -> None:
        """Start empty."""
        self._claims: dict[str, Claims] = {}

    def __len__(self) -> int:
        """Return the number of open attested connections."""
        return len(self._claims)

    def add(self, path: str, claims: Claims) -> None:
        """Store the claims of the connection that is bound to ``path``."""
        self._claims[path] = claims

    def remove(self, path: str) -> None:
        """Remove a connection; call this before its socket is closed."""
        self._claims.pop(path, None)

    def find(self, peer: str) -> Claims:
        """Return the claims of grpcio's ``context.peer()``; raises `Refusal` CHANNEL_NOT_ATTESTED."""
        claims = self._claims.get(peer.removeprefix(_UNIX)) if peer.startswith(_UNIX) else None
        if claims is None:
            raise Refusal("expected a call through the attested relay, got another", reason=Reason.CHANNEL_NOT_ATTESTED)
        return claims

    def caller(self, peer: str) -> Seat | None:
        """Return the seat of grpcio's ``context.peer()``, or None."""
        found = self._claims.get(peer.removeprefix(_UNIX))
        return found.seat if found is not None else None


_current: contextvars.ContextVar[Claims] = contextvars.ContextVar("attested_claims")


def claims() -> Claims:
    """Return the claims of the peer of the current call; raises CHANNEL_NOT_ATTESTED outside of a call."""
    try:
        return _current.get()
    except LookupError as error:
        raise Refusal("expected an attested call, there is none", reason=Reason.CHANNEL_NOT_ATTESTED) from error


class ClaimsInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses every call that did not come through the relay, and sets `claims` for the others."""

    def __init__(self, registry: Registry) -> None:
        """Store the registry of peers."""
        self._registry = registry

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Wrap the handler, since only the handler gets the peer of a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if handler.response_streaming:
            return _rebuilt(handler, self._streaming(handler.stream_stream or handler.unary_stream))
        return _rebuilt(handler, self._unary(handler.stream_unary or handler.unary_unary))

    async def _enter(self, context: Any) -> None:
        try:
            _current.set(self._registry.find(context.peer()))
        except Refusal as refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal.reason.value.coarse.value)

    def _unary(self, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def guarded(request: Any, context: Any) -> Any:
            await self._enter(context)
            return await behaviour(request, context)

        return guarded

    def _streaming(
        self, behaviour: Callable[[Any, Any], AsyncIterator[Any]]
    ) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._enter(context)
            async for message in behaviour(request, context):
                yield message

        return guarded


def _rebuilt(handler: Any, behaviour: Any) -> Any:
    kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


# The service for rejected peers, which refuses every call with one text and has no other handler.
#
# A gRPC client gets a refusal only as a gRPC status, so a server has to send it. Since it is not the real server, a
# rejected peer cannot reach real handlers even if a check behind the relay is missing.

_OPTIONS = (
    ("grpc.max_receive_message_length", 1 << 16),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
)


class _RejectEverything(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One handler for all methods; as a stream handler it works for calls of every kind."""

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler that rejects the call."""
        del handler_call_details
        return grpc.stream_stream_rpc_method_handler(_reject)


async def _reject(request_iterator: Any, context: Any) -> AsyncIterator[bytes]:
    del request_iterator
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, Coarse.REFUSED.value)
    yield b""  # never reached; makes this function a stream


async def start_rejector(path: Path) -> Any:
    """Start the service on the unix socket ``path`` and return its ``grpc.aio.Server``."""
    server = grpc.aio.server(options=_OPTIONS, handlers=(_RejectEverything(),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server
