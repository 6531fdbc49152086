# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The socket between the two processes: the one that holds the TPM answers, the one on the network asks."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import AttestedError, Refusal, SystemFault
from ..keyservice.framing import SocketAsker, refusal_answer
from ..proto.messages import message_class, parse
from ..reasons import Reason
from .init_handler import Begin
from .init_messages import MAX_REQUEST_BYTES
from .witness import EvidencePort

if TYPE_CHECKING:
    from pathlib import Path

    from .init_handler import Desk

INIT_SOCKET = "/run/attested/bootstrapper.sock"

_MAX_QUESTION_BYTES = MAX_REQUEST_BYTES + 8192
_FOLLOW_SECONDS = 5.0
_ANSWER_SECONDS = 45.0
"""A hardware TPM needs up to a second for each of the answers that wait before this one."""


class RequestLog(Protocol):
    """What the log of the process must do."""

    def request(self, name: str, /, **fields: str) -> Any:
        """Write the one line of a request when it ends."""


class Prover(Protocol):
    """What every desk says of its machine (`Exchanges`)."""

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest`."""

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What two processes say to each other: names of question and answer, and how the log calls it.

    ``unlogged``: the questions that are no line of the log; ``workers``: how many are answered at once.
    """

    name: str
    request: str
    response: str
    unlogged: frozenset[str] = frozenset()
    workers: int = 8
    question_bytes: int = _MAX_QUESTION_BYTES


_TALK = Talk(
    name="init",
    request="attested.v1.InitSocketRequest",
    response="attested.v1.InitSocketResponse",
    unlogged=frozenset({"identify", "follow"}),
    workers=16,
)


class ProvingService(ABC):
    """Answers the frames of a socket by a desk that proves its machine; every error becomes a refusal."""

    def __init__(self, prover: Prover, *, talk: Talk, log: RequestLog) -> None:
        """Answer by ``prover``; a subclass answers what is asked besides."""
        self._prover = prover
        self._talk = talk
        self._log = log
        self._workers = ThreadPoolExecutor(talk.workers, thread_name_prefix=talk.name)

    async def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data)

    def answer(self, data: bytes) -> bytes:
        """Answer one message in this thread."""
        try:
            request = parse(self._talk.request, data, limit=self._talk.question_bytes)
            kind = request.WhichOneof("question")
            if kind in self._talk.unlogged:
                return self._answer(request, kind)
            name = f"{self._talk.name}_{kind}"
            with self._log.request(name, correlation_id=request.correlation_id, source=request.source):
                return self._answer(request, kind)
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - the log has the story
            return refusal_answer(SystemFault(type(error).__name__, reason=Reason.INTERNAL))

    def close(self) -> None:
        """End the workers; a running job is not theirs."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    @abstractmethod
    def _answer_more(self, request: Any, kind: str | None, response: Any) -> None:
        """Fill ``response`` to a question of this service alone; raises `no_question` for any other."""

    def _answer(self, request: Any, kind: str | None) -> bytes:
        response = message_class(self._talk.response)()
        if kind == "identify":
            response.identity = self._prover.identity()
        elif kind == "testify":
            one = request.testify
            response.testimony = self._prover.testimony(
                one.challenge, exporter=one.exporter, spki_sha256=one.spki_sha256, source=request.source
            )
        else:
            self._answer_more(request, kind, response)
        return bytes(response.SerializeToString())


class DeskService(ProvingService):
    """Answers by the desk of init."""

    def __init__(self, desk: Desk, *, log: RequestLog) -> None:
        """Answer by ``desk``; each request that is no mere follow-up is a line of ``log``."""
        super().__init__(desk, talk=_TALK, log=log)
        self._desk = desk

    def _answer_more(self, request: Any, kind: str | None, response: Any) -> None:
        if kind == "begin":
            response.handle = self._desk.begin(asked_of(request.begin, source=request.source))
        elif kind == "follow":
            one = request.follow
            answers, response.followed.ended = self._desk.follow(one.handle, one.seen, wait_seconds=_FOLLOW_SECONDS)
            response.followed.responses.extend(answers)
        else:
            raise no_question()


class AdminPort(EvidencePort):
    """The network side's view of a desk that admins ask, one connection a question; raises BOOTSTRAPPER_UNREACHABLE."""

    def __init__(self, path: str | Path, *, talk: Talk, whose: str, timeout_seconds: float) -> None:
        """Ask at ``path``."""
        asker = SocketAsker(
            path,
            response_name=talk.response,
            timeout_seconds=timeout_seconds,
            whose=whose,
            absent=Reason.BOOTSTRAPPER_UNREACHABLE,
        )
        super().__init__(asker, request_name=talk.request)

    async def _ask(self, question: str, asked: Begin, *, correlation_id: str) -> Any:
        """Return the answer to a request as it came, asked as ``question``."""
        message = self._new(correlation_id, asked.source)
        one = getattr(message, question)
        one.request, one.admin_proof = asked.request, asked.admin_proof
        one.exporter, one.spki_sha256 = asked.exporter, asked.spki_sha256
        return await self._asker.ask(message)


def asked_of(one: Any, *, source: str) -> Begin:
    """Return the request of an admin out of the question that `AdminPort` made of it."""
    return Begin(
        request=one.request,
        admin_proof=one.admin_proof,
        exporter=one.exporter,
        spki_sha256=one.spki_sha256,
        source=source,
    )


def no_question() -> Refusal:
    """Return the refusal of a frame that asks nothing known."""
    return Refusal("expected one of the questions of this socket, got another", reason=Reason.MESSAGE_MALFORMED)


class DeskPort(AdminPort):
    """The network side's view of the desk of init."""

    def __init__(self, path: str | Path = INIT_SOCKET, *, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        super().__init__(path, talk=_TALK, whose="the bootstrapper", timeout_seconds=timeout_seconds)

    async def begin(self, asked: Begin, *, correlation_id: str) -> bytes:
        """Return the handle of the job of a request as it came."""
        return bytes((await self._ask("begin", asked, correlation_id=correlation_id)).handle)

    async def follow(self, handle: bytes, seen: int) -> tuple[tuple[bytes, ...], bool]:
        """Return what the job has said after the first ``seen`` answers, and whether that is all."""
        message = self._new("")
        message.follow.handle = handle
        message.follow.seen = seen
        followed = (await self._asker.ask(message)).followed
        return tuple(followed.responses), followed.ended
