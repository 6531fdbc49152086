# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The socket between the two processes: the one that holds the TPM answers, the one on the network asks."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, Refusal, SystemFault
from ..keys.asker import SocketAsker
from ..keys.framing import refusal_answer
from ..proto import message_class, parse
from ..reasons import Reason
from .desk import Begin
from .messages import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Protocol

    from .desk import Desk

    class RequestLog(Protocol):
        """What the log of the process must do."""

        def request(self, name: str, /, **fields: str) -> Any:
            """Write the one line of a request when it ends."""


INIT_SOCKET = "/run/attested/bootstrapper.sock"

_REQUEST = "attested.v1.InitSocketRequest"
_RESPONSE = "attested.v1.InitSocketResponse"
_MAX_QUESTION_BYTES = MAX_REQUEST_BYTES + 8192
_WORKERS = 16
_FOLLOW_SECONDS = 5.0
_ANSWER_SECONDS = 45.0
"""A hardware TPM needs up to a second for each of the answers that wait before this one."""


class DeskService:
    """Answers the frames of the socket by a desk; every error becomes a refusal."""

    def __init__(self, desk: Desk, *, log: RequestLog) -> None:
        """Answer by ``desk``; each request that is no mere follow-up is a line of ``log``."""
        self._desk = desk
        self._log = log
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="desk")

    async def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data)

    def answer(self, data: bytes) -> bytes:
        """Answer one message in this thread."""
        try:
            request = parse(_REQUEST, data, limit=_MAX_QUESTION_BYTES)
            kind = request.WhichOneof("question")
            if kind in ("identify", "follow"):
                return self._answer(request, kind)
            with self._log.request(f"init_{kind}", correlation_id=request.correlation_id, source=request.source):
                return self._answer(request, kind)
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - the log has the story
            return refusal_answer(SystemFault(type(error).__name__, reason=Reason.INTERNAL))

    def close(self) -> None:
        """End the workers; a running job is not theirs."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: Any, kind: str | None) -> bytes:
        response = message_class(_RESPONSE)()
        if kind == "identify":
            response.identity = self._desk.identity()
        elif kind == "testify":
            one = request.testify
            response.testimony = self._desk.testimony(one.challenge, exporter=one.exporter, spki_sha256=one.spki_sha256)
        elif kind == "begin":
            response.handle = self._desk.begin(
                Begin(
                    request=request.begin.request,
                    admin_proof=request.begin.admin_proof,
                    exporter=request.begin.exporter,
                    spki_sha256=request.begin.spki_sha256,
                    source=request.source,
                )
            )
        elif kind == "follow":
            one = request.follow
            answers, response.followed.ended = self._desk.follow(one.handle, one.seen, wait_seconds=_FOLLOW_SECONDS)
            response.followed.responses.extend(answers)
        else:
            raise Refusal("expected one of the four questions, got another", reason=Reason.MESSAGE_MALFORMED)
        return bytes(response.SerializeToString())


class DeskPort:
    """The network side's view of the desk, one connection a question; raises its refusals, BOOTSTRAPPER_UNREACHABLE."""

    def __init__(self, path: str | Path = INIT_SOCKET, *, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        self._asker = SocketAsker(
            path,
            response_name=_RESPONSE,
            timeout_seconds=timeout_seconds,
            whose="the bootstrapper",
            absent=Reason.BOOTSTRAPPER_UNREACHABLE,
        )

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""
        message = message_class(_REQUEST)(correlation_id=correlation_id)
        message.identify.SetInParent()
        return bytes((await self._asker.ask(message)).identity)

    async def testimony(
        self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str, correlation_id: str
    ) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came."""
        message = message_class(_REQUEST)(correlation_id=correlation_id, source=source)
        message.testify.challenge = challenge
        message.testify.exporter = exporter
        message.testify.spki_sha256 = spki_sha256
        return bytes((await self._asker.ask(message)).testimony)

    async def begin(self, asked: Begin, *, correlation_id: str) -> bytes:
        """Return the handle of the job of a request as it came."""
        message = message_class(_REQUEST)(correlation_id=correlation_id, source=asked.source)
        message.begin.request = asked.request
        message.begin.admin_proof = asked.admin_proof
        message.begin.exporter = asked.exporter
        message.begin.spki_sha256 = asked.spki_sha256
        return bytes((await self._asker.ask(message)).handle)

    async def follow(self, handle: bytes, seen: int) -> tuple[tuple[bytes, ...], bool]:
        """Return what the job has said after the first ``seen`` answers, and whether that is all."""
        message = message_class(_REQUEST)()
        message.follow.handle = handle
        message.follow.seen = seen
        followed = (await self._asker.ask(message)).followed
        return tuple(followed.responses), followed.ended
