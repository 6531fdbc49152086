# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The socket between the two processes of a locked node: the one that holds the TPM answers, the other one asks."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, Refusal, SystemFault
from ..init import Begin
from ..keys.asker import SocketAsker
from ..keys.framing import refusal_answer
from ..proto import message_class, parse
from ..reasons import Reason
from .messages import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Protocol

    from .desk import RecoveryDesk

    class RequestLog(Protocol):
        """What the log of the process must do."""

        def request(self, name: str, /, **fields: str) -> Any:
            """Write the one line of a request when it ends."""


RECOVERY_SOCKET = "/run/attested/recovery.sock"
ANSWER_SECONDS = 300.0
"""The disk is opened within the call, and its file system may have to be looked through."""

_REQUEST = "attested.v1.RecoverySocketRequest"
_RESPONSE = "attested.v1.RecoverySocketResponse"
_MAX_QUESTION_BYTES = MAX_REQUEST_BYTES + 8192
_WORKERS = 8


class RecoveryDeskService:
    """Answers the frames of the socket by a desk; every error becomes a refusal."""

    def __init__(self, desk: RecoveryDesk, *, log: RequestLog) -> None:
        """Answer by ``desk``; each request is a line of ``log``."""
        self._desk = desk
        self._log = log
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="recovery")

    async def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data)

    def answer(self, data: bytes) -> bytes:
        """Answer one message in this thread."""
        try:
            request = parse(_REQUEST, data, limit=_MAX_QUESTION_BYTES)
            kind = request.WhichOneof("question")
            with self._log.request(f"recovery_{kind}", correlation_id=request.correlation_id, source=request.source):
                return self._answer(request, kind)
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - the log has the story
            return refusal_answer(SystemFault(type(error).__name__, reason=Reason.INTERNAL))

    def close(self) -> None:
        """End the workers."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: Any, kind: str | None) -> bytes:
        response = message_class(_RESPONSE)()
        if kind == "identify":
            response.identity = self._desk.identity()
        elif kind == "testify":
            one = request.testify
            response.testimony = self._desk.testimony(one.challenge, exporter=one.exporter, spki_sha256=one.spki_sha256)
        elif kind == "recover":
            one = request.recover
            asked = Begin(
                request=one.request,
                admin_proof=one.admin_proof,
                exporter=one.exporter,
                spki_sha256=one.spki_sha256,
                source=request.source,
            )
            response.response = self._desk.recover(asked, correlation_id=request.correlation_id)
        else:
            raise Refusal("expected one of the three questions, got another", reason=Reason.MESSAGE_MALFORMED)
        return bytes(response.SerializeToString())


class RecoveryPort:
    """The network side's view of the desk; raises its refusals, BOOTSTRAPPER_UNREACHABLE."""

    def __init__(self, path: str | Path = RECOVERY_SOCKET, *, timeout_seconds: float = ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        self._asker = SocketAsker(
            path,
            response_name=_RESPONSE,
            timeout_seconds=timeout_seconds,
            whose="the process that holds the TPM",
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

    async def recover(self, asked: Begin, *, correlation_id: str) -> bytes:
        """Return the serialised `RecoverResponse` to a request as it came."""
        message = message_class(_REQUEST)(correlation_id=correlation_id, source=asked.source)
        message.recover.request = asked.request
        message.recover.admin_proof = asked.admin_proof
        message.recover.exporter = asked.exporter
        message.recover.spki_sha256 = asked.spki_sha256
        return bytes((await self._asker.ask(message)).response)
