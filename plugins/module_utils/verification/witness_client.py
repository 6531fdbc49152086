# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the witness over its unix socket, one connection a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..keys.asker import SocketAsker
from ..proto import message_class
from ..reasons import Reason
from .witness import WITNESS_REQUEST, WITNESS_RESPONSE

if TYPE_CHECKING:
    from pathlib import Path

WITNESS_SOCKET = "/run/attested/witness.sock"

_ANSWER_SECONDS = 25.0
"""A hardware TPM needs up to a second for each of the answers that wait before this one."""


class EvidencePort:
    """The network side's view of a process that holds the TPM; every call raises what refused it, or what is absent."""

    def __init__(self, asker: SocketAsker, *, request_name: str) -> None:
        """Ask by ``asker`` with messages of this name; a subclass has the questions of its own."""
        self._asker = asker
        self._request_name = request_name

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""
        message = self._new(correlation_id)
        message.identify.SetInParent()
        return bytes((await self._asker.ask(message)).identity)

    async def testimony(
        self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, correlation_id: str, source: str = ""
    ) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came; ``source`` where that process logs who asks."""
        message = self._new(correlation_id, source)
        message.testify.challenge = challenge
        message.testify.exporter = exporter
        message.testify.spki_sha256 = spki_sha256
        return bytes((await self._asker.ask(message)).testimony)

    def _new(self, correlation_id: str, source: str = "") -> Any:
        who = {"source": source} if source else {}
        return message_class(self._request_name)(correlation_id=correlation_id, **who)


class AsyncWitness(EvidencePort):
    """The network side's view of the witness; raises its refusals, WITNESS_UNREACHABLE."""

    def __init__(self, path: str | Path = WITNESS_SOCKET, *, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        asker = SocketAsker(
            path,
            response_name=WITNESS_RESPONSE,
            timeout_seconds=timeout_seconds,
            whose="the witness",
            absent=Reason.WITNESS_UNREACHABLE,
        )
        super().__init__(asker, request_name=WITNESS_REQUEST)

    async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
        """Return a document in Constellation's form over ``nonce``."""
        message = self._new(correlation_id)
        message.constellation.nonce = nonce
        return bytes((await self._asker.ask(message)).document)
