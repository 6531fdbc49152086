# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gRPC server on a unix socket whose handlers get the bytes of a request exactly as they were sent.

Every call has a correlation id, a deadline, one line in the log, and one place where errors become a status. The peer
gets the coarse text of the reason and the id; the log has all details under the same id. A call takes a place when its
message is complete, and frees it before a refusal waits to be sent, so incomplete and refused calls hold no place.
"""

from __future__ import annotations

import asyncio
import math
import stat
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.grpc import grpc
from ..core.host import Clock, Random, SystemClock, SystemRandom
from ..errors import AttestedError, Refusal, SystemFault
from ..reasons import Coarse, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..core.logs import Line, Log
    from ..core.runtime import Notifier


# Health of a service: named parts, each with a text; reported by `grpc.health.v1` and as systemd status.

HEALTH_METHOD = "/grpc.health.v1.Health/Check"

_SERVING = b"\x08\x01"
"""`HealthCheckResponse` with status SERVING (1)."""
_NOT_SERVING = b"\x08\x02"


class Health:
    """The state of a service's parts; the service works if every part does."""

    def __init__(self, notifier: Notifier, *, version: str, parts: tuple[str, ...]) -> None:
        """Start with all ``parts`` not working."""
        self._notifier = notifier
        self._version = version
        self._parts: dict[str, str | None] = dict.fromkeys(parts, "starting")
        self._announced = False

    @property
    def is_serving(self) -> bool:
        """Whether every part works."""
        return not any(self._parts.values())

    @property
    def sentence(self) -> str:
        """The text of ``systemctl status``."""
        troubles = [f"{name}: {trouble}" for name, trouble in self._parts.items() if trouble]
        return f"{self._version}, {'; '.join(troubles) or 'serving'}"

    def working(self, part: str) -> None:
        """Set ``part`` to working."""
        self._note(part, None)

    def troubled(self, part: str, trouble: str) -> None:
        """Set the error text of ``part``."""
        self._note(part, trouble)

    async def handle(self, request: bytes, call: Call) -> bytes:
        """Return the response of `HEALTH_METHOD`, for any service name in the request."""
        del request, call
        return _SERVING if self.is_serving else _NOT_SERVING

    def _note(self, part: str, trouble: str | None) -> None:
        if self._parts[part] == trouble:
            return
        self._parts[part] = trouble
        if self.is_serving and not self._announced:
            self._announced = True
            self._notifier.ready(self.sentence)
        else:
            self._notifier.status(self.sentence)


CORRELATION_HEADER = "attested-correlation-id"
RETRY_HEADER = "attested-retry-after-milliseconds"

_BUSY_SECONDS = 1.0
"""The pause to request if a limit does not know one."""

_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of one server."""

    message_bytes: int = 1 << 20
    """Event logs of a real boot have up to 200 KB."""
    answer_bytes: int = 1 << 20
    """The largest message that is sent."""
    metadata_bytes: int = 1 << 15
    """Room for a bound quote (3 KB)."""
    calls: int = 64
    """Calls at the same time; more get RESOURCE_EXHAUSTED."""
    calls_per_source: int = 32
    """The same for one source of unknown callers."""
    calls_reserved: int = 0
    """The number of these places that are reserved for known callers."""
    streams: int = 2
    """Calls of one connection at the same time; our clients send one after the other."""
    request_seconds: float = 5.0
    """From a request's headers to its last byte; 200 KB over a slow line need one or two."""
    call_seconds: float = 30.0
    """From the request's last byte to the answer."""
    idle_seconds: float = 30.0
    """How long a connection may stay open without a call."""
    drain_seconds: float = 10.0
    """The time for running calls when the service stops."""
    refusal_floor_seconds: float = 0.0
    """The least time from the beginning of a call to its refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: its ``method`` path, ``correlation_id``, ``metadata`` (names with -bin have bytes) and log line."""

    method: str
    correlation_id: str
    metadata: Mapping[str, str | bytes]
    line: Line


class Caller(Protocol):
    """The caller as the relay before the server knows it: the seat of its connection."""

    @property
    def source(self) -> str:
        """The source of the connection."""

    @property
    def is_known(self) -> bool:
        """Whether the caller is proven."""

    def begin(self) -> None:
        """Count one complete request; raises `Refusal` if this connection may send no more."""

    def end(self) -> None:
        """Count the end of a request whose response is decided."""

    def refused(self) -> None:
        """Report that a call was refused and that the refusal was sent."""


Handler = Callable[[bytes, Call], Awaitable[bytes]]
StreamHandler = Callable[[bytes, Call], AsyncIterator[bytes]]
_Answer = Callable[[str, AsyncIterator[bytes], Any], Awaitable[bytes]]
_StreamAnswer = Callable[[str, AsyncIterator[bytes], Any], AsyncIterator[bytes]]

_STATUS = {
    Coarse.BUSY: "RESOURCE_EXHAUSTED",
    Coarse.INVALID: "INVALID_ARGUMENT",
    Coarse.REFUSED: "PERMISSION_DENIED",
    Coarse.UNAVAILABLE: "UNAVAILABLE",
}


class UnixServer:
    """Serves calls on ``socket_path`` (mode 0600) by the handlers of their paths."""

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
        callers: Callable[[str], Caller | None] = lambda _peer: None,
    ) -> None:
        """Store the collaborators; ``handlers`` maps paths such as ``/join.API/IssueJoinTicket``.

        ``streams`` respond to one request with many messages. ``callers`` returns the caller by gRPC's name of the
        peer.
        """
        self._path = Path(socket_path)
        self._handlers = dict(handlers)
        self._streams = dict(streams or {})
        self._log = log
        self._interceptors = tuple(interceptors)
        self._limits = limits or ServerLimits()
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._callers = callers
        self._places = _Places(self._limits)
        self._server: Any = None

    async def start(self) -> None:
        """Listen, and replace the socket of a killed process. Raises FILE_UNUSABLE."""
        server = grpc.aio.server(
            interceptors=self._interceptors,
            options=_options(self._limits),
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
        """Accept no more calls, let running calls end within `ServerLimits.drain_seconds`, remove the socket."""
        if self._server is not None:
            await self._server.stop(self._limits.drain_seconds)
        self._server = None
        self._path.unlink(missing_ok=True)

    @property
    def calls(self) -> int:
        """The number of calls whose response is not decided yet."""
        return len(self._places)

    async def _answer(self, method: str, requests: AsyncIterator[bytes], context: Any) -> bytes:
        begun = self._clock.monotonic()
        caller, identifier = self._begun(context)
        request = await self._whole(requests)
        try:
            with self._log.request("call", method=method, correlation_id=identifier) as line:
                call = _call(method, identifier, context, line)
                with self._places.taken(caller):
                    return await self._within_time(self._handlers[method](self._require(request), call))
        except AttestedError as error:
            reason, wait = error.reason, error.retry_after_seconds
        except Exception:  # noqa: BLE001 - Log.request has written it; the peer must not see it
            reason, wait = Reason.INTERNAL, 0.0
        await self._refuse(context, reason, wait, identifier, begun=begun)  # pylint: disable=used-before-assignment
        return b""

    async def _stream(self, method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        begun = self._clock.monotonic()
        caller, identifier = self._begun(context)
        request = await self._whole(requests)
        try:
            with self._log.request("call", method=method, correlation_id=identifier) as line:
                call = _call(method, identifier, context, line)
                with self._places.taken(caller):
                    async for message in self._streams[method](self._require(request), call):
                        yield message
                return
        except AttestedError as error:
            reason, wait = error.reason, error.retry_after_seconds
        except Exception:  # noqa: BLE001 - as above
            reason, wait = Reason.INTERNAL, 0.0
        await self._refuse(context, reason, wait, identifier, begun=begun)  # pylint: disable=used-before-assignment

    def _begun(self, context: Any) -> tuple[Caller | None, str]:
        """Return the caller and the id of this call, which the peer gets with any result."""
        identifier = self._random.token(_ID_BYTES).hex()
        context.set_trailing_metadata(((CORRELATION_HEADER, identifier),))
        return self._callers(context.peer()), identifier

    async def _whole(self, requests: AsyncIterator[bytes]) -> bytes | None:
        """Return the request, or None if it is not complete in time.

        Raises CancelledError if there is nothing to respond to: gRPC has refused the request for its size, or the peer
        is gone.
        """
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                async for request in requests:
                    return request
        except TimeoutError:
            return None
        raise asyncio.CancelledError

    def _require(self, request: bytes | None) -> bytes:
        if request is None:
            raise Refusal(
                f"expected a complete request within {self._limits.request_seconds:g} s of its headers, got none",
                reason=Reason.REQUEST_INCOMPLETE,
            )
        return request

    async def _refuse(self, context: Any, reason: Reason, wait: float, identifier: str, *, begun: float) -> None:
        await asyncio.sleep(max(0.0, begun + self._limits.refusal_floor_seconds - self._clock.monotonic()))
        coarse = reason.value.coarse
        if coarse is Coarse.LOCAL:  # an error of this machine: the peer only needs to know that it may retry
            coarse = Coarse.UNAVAILABLE
        if coarse is Coarse.BUSY:
            pause = str(math.ceil((wait or _BUSY_SECONDS) * 1000))
            context.set_trailing_metadata(((CORRELATION_HEADER, identifier), (RETRY_HEADER, pause)))
        caller = self._callers(context.peer())
        try:
            await context.abort(getattr(grpc.StatusCode, _STATUS[coarse]), coarse.value)
        finally:
            if caller is not None:
                caller.refused()

    async def _within_time(self, answer: Awaitable[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                return await answer
        except TimeoutError as error:
            raise SystemFault(
                f"expected an answer within {self._limits.call_seconds:g} s", reason=Reason.REQUEST_TIMEOUT
            ) from error


class _Places:
    """Counts the running calls: in total, by source, and with a reserve for known callers."""

    def __init__(self, limits: ServerLimits) -> None:
        """Count against ``limits``."""
        self._limits = limits
        self._strangers: Counter[str] = Counter()
        self._running = 0

    def __len__(self) -> int:
        """Return the number of running calls."""
        return self._running

    @contextmanager
    def taken(self, caller: Caller | None) -> Iterator[None]:
        """Hold a place for ``caller`` (None: a process on this machine); raises `Refusal` CALL_LIMIT."""
        stranger = caller.source if caller is not None and not caller.is_known else None
        if not self._is_free(stranger):
            raise Refusal(
                f"expected at most {self._limits.calls} calls at once, of unknown callers "
                f"{self._limits.calls - self._limits.calls_reserved} and {self._limits.calls_per_source} from one "
                "source, got one more",
                reason=Reason.CALL_LIMIT,
            )
        if caller is not None:
            caller.begin()
        self._running += 1
        if stranger is not None:
            self._strangers[stranger] += 1
        try:
            yield
        finally:
            self._running -= 1
            if stranger is not None:
                self._strangers[stranger] -= 1
                self._strangers += Counter()  # drops the zeros
            if caller is not None:
                caller.end()

    def _is_free(self, stranger: str | None) -> bool:
        limits = self._limits
        if self._running >= limits.calls:
            return False
        if stranger is None:
            return True
        in_all = self._strangers.total() < limits.calls - limits.calls_reserved
        return in_all and self._strangers[stranger] < limits.calls_per_source


def _call(method: str, identifier: str, context: Any, line: Line) -> Call:
    metadata = dict(context.invocation_metadata() or ())
    return Call(method=method, correlation_id=identifier, metadata=metadata, line=line)


class _Paths(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a path; messages are passed as bytes."""

    def __init__(self, handlers: Mapping[str, Any], answer: _Answer) -> None:
        """Serve the paths in ``handlers`` by ``answer``."""
        self._methods = {path: _bind(path, answer) for path in handlers}

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of the path, or None if the path is unknown."""
        return self._methods.get(handler_call_details.method)


def _bind(path: str, answer: _Answer) -> Any:
    """Return a handler that starts at the headers: gRPC's handler for one request would wait for it without limit."""

    async def behaviour(requests: AsyncIterator[bytes], context: Any) -> bytes:
        return await answer(path, requests, context)

    return grpc.stream_unary_rpc_method_handler(behaviour)


class _StreamPaths(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a path whose response is a stream."""

    def __init__(self, streams: Mapping[str, Any], answer: _StreamAnswer) -> None:
        """Serve the paths in ``streams`` by ``answer``."""
        self._methods = {path: _bind_stream(path, answer) for path in streams}

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of the path, or None if the path is unknown."""
        return self._methods.get(handler_call_details.method)


def _bind_stream(path: str, answer: _StreamAnswer) -> Any:
    async def behaviour(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for message in answer(path, requests, context):
            yield message

    return grpc.stream_stream_rpc_method_handler(behaviour)


def _options(limits: ServerLimits) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        ("grpc.max_concurrent_streams", limits.streams),
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
