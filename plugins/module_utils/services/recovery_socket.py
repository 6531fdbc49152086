# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The socket between the two processes of a locked node: the one that holds the TPM answers, the other one asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .init_socket import AdminPort, ProvingService, Talk, asked_of, no_question
from .recovery_messages import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from .init_handler import Begin
    from .init_socket import RequestLog
    from .recovery_handler import RecoveryDesk

RECOVERY_SOCKET = "/run/attested/recovery.sock"
ANSWER_SECONDS = 300.0
"""The disk is opened within the call, and its file system may have to be looked through."""

_TALK = Talk(
    name="recovery",
    request="attested.v1.RecoverySocketRequest",
    response="attested.v1.RecoverySocketResponse",
    question_bytes=MAX_REQUEST_BYTES + 8192,
)


class RecoveryDeskService(ProvingService):
    """Answers by the desk of recovery."""

    def __init__(self, desk: RecoveryDesk, *, log: RequestLog) -> None:
        """Answer by ``desk``; each request is a line of ``log``."""
        super().__init__(desk, talk=_TALK, log=log)
        self._desk = desk

    def _answer_more(self, request: Any, kind: str | None, response: Any) -> None:
        if kind != "recover":
            raise no_question()
        asked = asked_of(request.recover, source=request.source)
        response.response = self._desk.recover(asked, correlation_id=request.correlation_id)


class RecoveryPort(AdminPort):
    """The network side's view of the desk of recovery."""

    def __init__(self, path: str | Path = RECOVERY_SOCKET, *, timeout_seconds: float = ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        super().__init__(path, talk=_TALK, whose="the process that holds the TPM", timeout_seconds=timeout_seconds)

    async def recover(self, asked: Begin, *, correlation_id: str) -> bytes:
        """Return the serialised `RecoverResponse` to a request as it came."""
        return bytes((await self._ask("recover", asked, correlation_id=correlation_id)).response)
