# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls between two processes of one machine over a unix socket: the frames, the refusals, the client.

A frame is 4 bytes of length (big-endian), then one message, at most 1 MiB.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.logs import Line
from ..errors import AttestedError, KeyServiceError, Refusal, SystemFault
from ..proto.messages import message_class, parse
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from ..core.logs import Log

    Handler = Callable[[bytes], Awaitable[bytes]]


MAX_FRAME_BYTES = 1 << 20
RESPONSE = "attested.v1.KeyServiceResponse"
"""A refusal has the same field number in the responses of all sockets, so this message can carry each of them."""

_KEEP_SECONDS = 5.0
"""The server closes a connection without requests after 10 s."""

_LENGTH_BYTES = 4


def frame(message: bytes) -> bytes:
    """Return ``message`` after its length; raises MESSAGE_TOO_LARGE."""
    return _bounded(len(message)).to_bytes(_LENGTH_BYTES, "big") + message


def frame_length(head: bytes) -> int:
    """Return the length in the first four bytes of a frame; raises MESSAGE_TOO_LARGE before the message is read."""
    return _bounded(int.from_bytes(head, "big"))


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next message; raises MESSAGE_TOO_LARGE, and IncompleteReadError at the end of the stream."""
    return await reader.readexactly(frame_length(await reader.readexactly(_LENGTH_BYTES)))


def refusal_answer(error: AttestedError) -> bytes:
    """Return the response that carries an error: code and message for the log, coarse text for the peer."""
    response = message_class(RESPONSE)()
    response.refusal.code = error.code
    response.refusal.message = error.message
    response.refusal.coarse = error.reason.value.coarse.value
    response.refusal.retry_after_milliseconds = math.ceil(error.retry_after_seconds * 1000)
    return bytes(response.SerializeToString())


def answer_of(data: bytes, response_name: str = RESPONSE) -> Any:
    """Return the parsed response; raises the `Refusal` in it, with the same reason, or MESSAGE_MALFORMED."""
    response = parse(response_name, data)
    kind = response.WhichOneof("answer")
    if kind is None:
        raise Refusal(f"expected an answer in {response_name}, got none", reason=Reason.MESSAGE_MALFORMED)
    if kind == "refusal":
        raise Refusal(
            response.refusal.message,
            reason=_reason(response.refusal.code),
            retry_after_seconds=response.refusal.retry_after_milliseconds / 1000,
        )
    return response


def _bounded(length: int) -> int:
    if length > MAX_FRAME_BYTES:
        raise Refusal(
            f"expected a frame of at most {MAX_FRAME_BYTES} bytes, got {length}", reason=Reason.MESSAGE_TOO_LARGE
        )
    return length


def _reason(code: str) -> Reason:
    return Reason.__members__.get(code, Reason.INTERNAL)


# The client.


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service to call: the ``path`` of its socket, its ``name`` for messages, the reason if it is ``absent``.

    ``timeout_seconds`` is the time for one call, from the connection to the response.
    """

    path: str | Path
    name: str
    absent: Reason
    timeout_seconds: float

    def unreachable(self, error: Exception) -> SystemFault:
        """Return the error with the reason ``absent``."""
        return SystemFault(
            f"expected {self.name} at {self.path}, got {type(error).__name__}: {error}", reason=self.absent
        )


@dataclass(slots=True)
class _Kept:
    """An open connection and the time of its last response."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float = 0.0

    def is_usable(self, now: float) -> bool:
        """Return whether the server probably still has the connection open."""
        return not self.reader.at_eof() and not self.writer.is_closing() and now - self.since < _KEEP_SECONDS


class Caller:
    """Calls a service whose responses have one message type; keeps at most ``keep`` connections open for later calls.

    A kept connection that the server has closed meanwhile is replaced, and the call is sent again.
    """

    def __init__(self, service: Service, *, response_name: str, keep: int = 0) -> None:
        """Call ``service``."""
        self._service = service
        self._response_name = response_name
        self._keep = keep
        self._kept: list[_Kept] = []

    async def call(self, message: Any) -> Any:
        """Return the response to ``message``; raises its `Refusal`, or `SystemFault` if the service is absent."""
        try:
            async with asyncio.timeout(self._service.timeout_seconds):
                return answer_of(await self._exchange(frame(message.SerializeToString())), self._response_name)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise self._service.unreachable(error) from error

    async def _exchange(self, sent: bytes) -> bytes:
        kept = self._take()
        if kept is not None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                return await self._converse(kept, sent)
        return await self._converse(_Kept(*await asyncio.open_unix_connection(str(self._service.path))), sent)

    async def _converse(self, connection: _Kept, sent: bytes) -> bytes:
        """Send one message and receive the response; on any error close the connection, so that the server notices."""
        try:
            connection.writer.write(sent)
            await connection.writer.drain()
            answer = await read_frame(connection.reader)
        except BaseException:
            connection.writer.close()
            raise
        if len(self._kept) < self._keep:
            connection.since = asyncio.get_running_loop().time()
            self._kept.append(connection)
        else:
            connection.writer.close()
        return answer

    def _take(self) -> _Kept | None:
        now = asyncio.get_running_loop().time()
        while self._kept:
            connection = self._kept.pop()
            if connection.is_usable(now):
                return connection
            connection.writer.close()
        return None


def call_and_wait(service: Service, message: Any) -> bytes:
    """Return the response to ``message`` as bytes, blocking; raises `SystemFault` if the service is absent."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(service.timeout_seconds)
            connection.connect(str(service.path))
            connection.sendall(frame(message.SerializeToString()))
            return _exactly(connection, frame_length(_exactly(connection, _LENGTH_BYTES)))
    except OSError as error:
        raise service.unreachable(error) from error


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return data


# The server of a unix socket: the allowed callers, the limits, one task for each connection, and a table of calls.
#
# grpcio cannot check SO_PEERCRED, so this is a plain asyncio server. The kernel reports the user id of a caller; the
# mode
# of the socket file is a second check.

_CREDENTIALS = struct.Struct("3i")
_MAX_CONNECTIONS = 128
_READ_SECONDS = 10.0
_STRANGER_SECONDS = 1.0


def never_gone() -> bool:
    """Return false, for calls without a connection that could be closed."""
    return False


_gone: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar("caller_gone", default=never_gone)


class SocketServer:
    """Serves framed messages at ``path`` to the users in ``allowed``."""

    def __init__(
        self,
        path: Path,
        *,
        handler: Handler,
        allowed: frozenset[int],
        group: int = 0,
        refused: Callable[[int], None],
        stranger: Reason = Reason.KEY_SERVICE_CALLER_UNKNOWN,
    ) -> None:
        """Respond to each message by ``handler``.

        ``refused`` gets the user id of a caller that is not allowed, to which the reason ``stranger`` is sent.
        """
        self._path = path
        self._handler = handler
        self._allowed = allowed
        self._group = group
        self._refused = refused
        self._stranger = stranger
        self._places = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._idle: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, and replace the socket of a killed service. Raises FILE_UNUSABLE."""
        try:
            self._path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(self._path))
            self._path.chmod(0o660)
            os.chown(self._path, -1, self._group)
        except OSError as error:
            raise SystemFault(
                f"cannot listen at {self._path}: {error.strerror}", reason=Reason.FILE_UNUSABLE
            ) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def stop(self) -> None:
        """Accept no more calls and remove the socket."""
        if self._server is not None:
            self._server.close()
            for writer in self._idle:
                writer.close()
            await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._places:
                await self._converse(reader, writer)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        user = peer_user(writer.get_extra_info("socket"))
        if user not in self._allowed:
            self._refused(user)
            await _send(writer, refusal_answer(_unknown_caller(user, self._stranger)))
            with suppress(TimeoutError, ConnectionError):  # a caller that still writes when we close would not get it
                async with asyncio.timeout(_STRANGER_SECONDS):
                    await reader.read(1)
            return
        _gone.set(reader.at_eof)
        with suppress(asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            while True:
                try:
                    message = await self._next(reader, writer)
                except AttestedError as error:
                    await _send(writer, refusal_answer(error))
                    return  # the stream cannot be parsed after a frame that was not read
                await _send(writer, await self._handler(message))

    async def _next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        self._idle.add(writer)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return await read_frame(reader)
        finally:
            self._idle.discard(writer)


def caller_gone() -> Callable[[], bool]:
    """Return a function that returns, in any thread, whether the caller of the current call has disconnected."""
    return _gone.get()


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the peer's process (unix(7), SO_PEERCRED)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


async def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(frame(message))
    await writer.drain()


def _unknown_caller(user: int, reason: Reason) -> KeyServiceError:
    return KeyServiceError(f"expected root or the user of the other service, got user {user}", reason=reason)


# The calls: each is handled by a function, in a thread.


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSchema:
    """The calls of one socket: the message names of ``request`` and ``response``; ``question`` is the request's oneof.

    A call is logged as the event ``name``_KIND with the fields ``logged`` of the request; ``titles`` has other words
    for a kind. ``unlogged``: kinds that are not logged. ``workers``: how many calls are handled at once.
    """

    name: str
    request: str
    response: str
    question: str = "question"
    logged: tuple[str, ...] = ("correlation_id",)
    titles: Mapping[str | None, str] = field(default_factory=dict)
    unlogged: frozenset[str] = frozenset()
    workers: int = 8
    question_bytes: int = MAX_FRAME_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCall:
    """One call: its ``kind`` (None if unknown), the whole ``request``, and the ``line`` of the log.

    ``gone`` returns, in any thread, whether the caller has disconnected.
    """

    kind: str | None
    request: Any
    line: Line
    gone: Callable[[], bool]

    @property
    def message(self) -> Any:
        """The message of the call's kind."""
        return getattr(self.request, self.kind or "")


class RpcService:
    """Handles the calls of a socket by a table of functions, in threads; every error becomes a refusal."""

    def __init__(self, schema: RpcSchema, answers: Mapping[str, Callable[[RpcCall, Any], None]], *, log: Log) -> None:
        """Let the function of a kind in ``answers`` fill the response; each call is one line of ``log``."""
        self._schema = schema
        self._answers = answers
        self._log = log
        self._workers = ThreadPoolExecutor(schema.workers, thread_name_prefix=schema.name)

    async def handle(self, data: bytes) -> bytes:
        """Return the response to one message."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data, caller_gone())

    def answer(self, data: bytes, gone: Callable[[], bool] = never_gone) -> bytes:
        """Return the response to one message, in this thread; ``gone``: as in `RpcCall`."""
        schema = self._schema
        try:
            request = parse(schema.request, data, limit=schema.question_bytes)
            kind = request.WhichOneof(schema.question)
            if kind in schema.unlogged:
                return self.respond(RpcCall(kind=kind, request=request, line=Line({}), gone=gone))
            fields = {name: getattr(request, name) for name in schema.logged}
            with self._log.request(f"{schema.name}_{schema.titles.get(kind, kind)}", **fields) as line:
                return self.respond(RpcCall(kind=kind, request=request, line=line, gone=gone))
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - Log.request has logged the error
            return refusal_answer(SystemFault(type(error).__name__, reason=Reason.INTERNAL))

    def respond(self, call: RpcCall) -> bytes:
        """Return the serialised response to a call; raises the error that refuses it."""
        response = message_class(self._schema.response)()
        answer = self._answers.get(call.kind or "")
        if answer is None:
            raise Refusal("expected one of the calls of this socket, got another", reason=Reason.MESSAGE_MALFORMED)
        answer(call, response)
        return bytes(response.SerializeToString())

    def close(self) -> None:
        """Stop the workers; jobs that a call has started continue."""
        self._workers.shutdown(wait=False, cancel_futures=True)
