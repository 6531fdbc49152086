# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answering side of a unix socket: who may call, how much, one task a connection, and a table of questions.

grpcio cannot check SO_PEERCRED, so this is a plain asyncio server. A caller is known by its user id, which the kernel
tells; the file's mode is only a second fence.
"""

from __future__ import annotations

import asyncio
import contextvars
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
from .unix_rpc import MAX_FRAME_BYTES, frame, read_frame, refusal_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from ..core.logs import Log

    Handler = Callable[[bytes], Awaitable[bytes]]

_CREDENTIALS = struct.Struct("3i")
_MAX_CONNECTIONS = 128
_READ_SECONDS = 10.0
_STRANGER_SECONDS = 1.0


def stays() -> bool:
    """Say that the caller still waits: for calls that came over no connection."""
    return False


_gone: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar("caller_gone", default=stays)


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
        """Answer each message by ``handler``.

        ``refused`` hears the user id of a caller that was sent away, which is told ``stranger``.
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
        """Listen; a socket that a killed service left is replaced. Raises FILE_UNUSABLE."""
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
        """Take no more calls and remove the socket."""
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
            with suppress(TimeoutError, ConnectionError):  # who is still writing when we close would not hear it
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
                    return  # the stream is of no use after a frame that was not read
                await _send(writer, await self._handler(message))

    async def _next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        self._idle.add(writer)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return await read_frame(reader)
        finally:
            self._idle.discard(writer)


def caller_gone() -> Callable[[], bool]:
    """Return what says, from any thread, whether the caller of the call being handled has hung up."""
    return _gone.get()


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end (unix(7), SO_PEERCRED)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


async def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(frame(message))
    await writer.drain()


def _unknown_caller(user: int, reason: Reason) -> KeyServiceError:
    return KeyServiceError(f"expected root or the user of the service beside this one, got user {user}", reason=reason)


# What is answered: each question by a function, in a thread.


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What two processes say to each other: the names of ``request`` and ``response``, whose oneof is ``question``.

    A question is the line ``name``_QUESTION of the log, with the fields ``logged`` of the request; ``titles`` holds
    other words for a question. ``unlogged``: questions that are no line. ``workers``: how many are answered at once.
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
class Asked:
    """One question: its ``kind`` (None for none that is known), the whole ``request``, the ``line`` of the log.

    ``gone`` says, from any thread, whether the caller has hung up.
    """

    kind: str | None
    request: Any
    line: Line
    gone: Callable[[], bool]

    @property
    def message(self) -> Any:
        """The message of the question."""
        return getattr(self.request, self.kind or "")


class RpcService:
    """Answers the frames of a socket by a table of questions, in threads; every error becomes a refusal."""

    def __init__(self, talk: Talk, answers: Mapping[str, Callable[[Asked, Any], None]], *, log: Log) -> None:
        """Let the function of a question in ``answers`` fill the response; each is one line of ``log``."""
        self._talk = talk
        self._answers = answers
        self._log = log
        self._workers = ThreadPoolExecutor(talk.workers, thread_name_prefix=talk.name)

    async def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data, caller_gone())

    def answer(self, data: bytes, gone: Callable[[], bool] = stays) -> bytes:
        """Answer one message in this thread; ``gone`` says whether anybody still waits for it."""
        talk = self._talk
        try:
            request = parse(talk.request, data, limit=talk.question_bytes)
            kind = request.WhichOneof(talk.question)
            if kind in talk.unlogged:
                return self.respond(Asked(kind=kind, request=request, line=Line({}), gone=gone))
            fields = {name: getattr(request, name) for name in talk.logged}
            with self._log.request(f"{talk.name}_{talk.titles.get(kind, kind)}", **fields) as line:
                return self.respond(Asked(kind=kind, request=request, line=line, gone=gone))
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - Log.request has written the story
            return refusal_answer(SystemFault(type(error).__name__, reason=Reason.INTERNAL))

    def respond(self, asked: Asked) -> bytes:
        """Return the serialised response to a question; raises what refuses it."""
        response = message_class(self._talk.response)()
        answer = self._answers.get(asked.kind or "")
        if answer is None:
            raise Refusal("expected one of the questions of this socket, got another", reason=Reason.MESSAGE_MALFORMED)
        answer(asked, response)
        return bytes(response.SerializeToString())

    def close(self) -> None:
        """End the workers; a job that a question began is not theirs."""
        self._workers.shutdown(wait=False, cancel_futures=True)
