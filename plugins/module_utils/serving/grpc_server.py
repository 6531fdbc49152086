# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gRPC server on a unix socket whose handlers get the bytes of a request exactly as they were sent.

Every call has a correlation id, a deadline, one line in the log, and one place where errors become a status: the peer
gets the coarse text of the reason, the log the whole story under the id that the peer got too.
"""

from __future__ import annotations

import asyncio
import math
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..errors import AttestedError, SystemFault
from ..reasons import Coarse, Reason
from ..system import Clock, Random, SystemClock, SystemRandom

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .logs import Line, Log

CORRELATION_HEADER = "attested-correlation-id"
RETRY_HEADER = "attested-retry-after-milliseconds"

_BUSY_SECONDS = 1.0
"""When to ask again where a limit does not know it."""

_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of one server."""

    message_bytes: int = 1 << 20
    """Event logs of a real boot have up to 200 KB."""
    answer_bytes: int = 1 << 20
    """The largest message that goes out."""
    metadata_bytes: int = 1 << 15
    """Room for a bound quote (3 KB)."""
    calls: int = 64
    """Calls at the same time; more are told RESOURCE_EXHAUSTED."""
    call_seconds: float = 30.0
    """From the request's last byte to the answer."""
    idle_seconds: float = 30.0
    """How long a connection may stay without a call."""
    drain_seconds: float = 10.0
    """What running calls get when the service stops."""
    refusal_floor_seconds: float = 0.0
    """No refusal is answered earlier, counted from the beginning of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: its ``method`` path, ``correlation_id``, ``metadata`` (names ending in -bin hold bytes), log line."""

    method: str
    correlation_id: str
    metadata: Mapping[str, str | bytes]
    line: Line


Handler = Callable[[bytes, Call], Awaitable[bytes]]
StreamHandler = Callable[[bytes, Call], AsyncIterator[bytes]]

_STATUS = {
    Coarse.BUSY: "RESOURCE_EXHAUSTED",
    Coarse.INVALID: "INVALID_ARGUMENT",
    Coarse.REFUSED: "PERMISSION_DENIED",
    Coarse.UNAVAILABLE: "UNAVAILABLE",
}


class UnixServer:
    """Serves calls on ``socket_path`` (mode 0600), each by the handler of its path."""

    def __init__(
        self,
        *,
        socket_path: str | Path,
        handlers: Mapping[str, Handler],
        log: Log,
        interceptors: Sequence[Any] = (),
        limits: ServerLimits | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        streams: Mapping[str, StreamHandler] | None = None,
    ) -> None:
        """Keep the collaborators; ``handlers`` maps paths such as ``/join.API/IssueJoinTicket``.

        ``streams`` answer one request with many messages, for as long as they have to say something.
        """
        self._path = Path(socket_path)
        self._handlers = dict(handlers)
        self._streams = dict(streams or {})
        self._log = log
        self._interceptors = tuple(interceptors)
        self._limits = limits or ServerLimits()
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._server: Any = None

    async def start(self) -> None:
        """Listen; a socket that a killed process has left is replaced. Raises FILE_UNUSABLE."""
        server = grpc.aio.server(
            interceptors=self._interceptors,
            options=_options(self._limits),
            maximum_concurrent_rpcs=self._limits.calls,
            handlers=(_Paths(self._handlers, self._answer), _StreamPaths(self._streams, self._stream)),
        )
        try:
            _clear(self._path)
            server.add_insecure_port(f"unix:{self._path}")
            self._path.chmod(0o600)
        except (OSError, RuntimeError) as error:
            raise SystemFault(f"cannot listen at {self._path}: {error}", reason=Reason.FILE_UNUSABLE) from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Take no more calls, let running ones end within `ServerLimits.drain_seconds`, remove the socket."""
        if self._server is not None:
            await self._server.stop(self._limits.drain_seconds)
        self._server = None
        self._path.unlink(missing_ok=True)

    async def _answer(self, method: str, request: bytes, context: Any) -> bytes:
        begun = self._clock.monotonic()
        identifier = self._random.token(_ID_BYTES).hex()
        context.set_trailing_metadata(((CORRELATION_HEADER, identifier),))
        try:
            with self._log.request("call", method=method, correlation_id=identifier) as line:
                call = _call(method, identifier, context, line)
                return await self._within_time(self._handlers[method](request, call))
        except AttestedError as error:
            reason, wait = error.reason, error.retry_after_seconds
        except Exception:  # noqa: BLE001 - Log.request has written it; the peer must not see it
            reason, wait = Reason.INTERNAL, 0.0
        await self._refuse(context, reason, wait, identifier, begun=begun)  # pylint: disable=used-before-assignment
        return b""

    async def _stream(self, method: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        begun = self._clock.monotonic()
        identifier = self._random.token(_ID_BYTES).hex()
        context.set_trailing_metadata(((CORRELATION_HEADER, identifier),))
        try:
            with self._log.request("call", method=method, correlation_id=identifier) as line:
                call = _call(method, identifier, context, line)
                async for message in self._streams[method](request, call):
                    yield message
                return
        except AttestedError as error:
            reason, wait = error.reason, error.retry_after_seconds
        except Exception:  # noqa: BLE001 - as above
            reason, wait = Reason.INTERNAL, 0.0
        await self._refuse(context, reason, wait, identifier, begun=begun)  # pylint: disable=used-before-assignment

    async def _refuse(self, context: Any, reason: Reason, wait: float, identifier: str, *, begun: float) -> None:
        await asyncio.sleep(max(0.0, begun + self._limits.refusal_floor_seconds - self._clock.monotonic()))
        coarse = reason.value.coarse
        if coarse is Coarse.LOCAL:  # a trouble of this machine, of which a peer only needs to know that it may pass
            coarse = Coarse.UNAVAILABLE
        if coarse is Coarse.BUSY:
            pause = str(math.ceil((wait or _BUSY_SECONDS) * 1000))
            context.set_trailing_metadata(((CORRELATION_HEADER, identifier), (RETRY_HEADER, pause)))
        await context.abort(getattr(grpc.StatusCode, _STATUS[coarse]), coarse.value)

    async def _within_time(self, answer: Awaitable[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                return await answer
        except TimeoutError as error:
            raise SystemFault(
                f"expected an answer within {self._limits.call_seconds:g} s", reason=Reason.REQUEST_TIMEOUT
            ) from error


def _call(method: str, identifier: str, context: Any, line: Line) -> Call:
    metadata = dict(context.invocation_metadata() or ())
    return Call(method=method, correlation_id=identifier, metadata=metadata, line=line)


class _Paths(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a path; messages stay bytes."""

    def __init__(self, handlers: Mapping[str, Any], answer: Callable[[str, bytes, Any], Awaitable[bytes]]) -> None:
        """Answer the paths in ``handlers`` by ``answer``."""
        self._methods = {path: _bind(path, answer) for path in handlers}

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler, or None for a path that is not served."""
        return self._methods.get(handler_call_details.method)


def _bind(path: str, answer: Callable[[str, bytes, Any], Awaitable[bytes]]) -> Any:
    async def behaviour(request: bytes, context: Any) -> bytes:
        return await answer(path, request, context)

    return grpc.unary_unary_rpc_method_handler(behaviour)


class _StreamPaths(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a path whose answer is a stream."""

    def __init__(self, streams: Mapping[str, Any], answer: Callable[[str, bytes, Any], AsyncIterator[bytes]]) -> None:
        """Answer the paths in ``streams`` by ``answer``."""
        self._methods = {path: _bind_stream(path, answer) for path in streams}

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler, or None for a path that is not served."""
        return self._methods.get(handler_call_details.method)


def _bind_stream(path: str, answer: Callable[[str, bytes, Any], AsyncIterator[bytes]]) -> Any:
    async def behaviour(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for message in answer(path, request, context):
            yield message

    return grpc.unary_stream_rpc_method_handler(behaviour)


def _options(limits: ServerLimits) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        ("grpc.max_concurrent_streams", 16),
        ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1000)),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.answer_bytes),
        ("grpc.server_handshake_timeout_ms", 5000),
        ("grpc.so_reuseport", 0),
    )


def _clear(path: Path) -> None:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        path.unlink()
