# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the witness over its unix socket, one connection a question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..errors import Refusal, SystemFault
from ..keys.framing import frame, read_frame
from ..proto import message_class, parse
from ..reasons import Reason
from .witness import WITNESS_REQUEST, WITNESS_RESPONSE

if TYPE_CHECKING:
    from pathlib import Path

WITNESS_SOCKET = "/run/attested/witness.sock"

_ANSWER_SECONDS = 25.0
"""A hardware TPM needs up to a second for each of the answers that wait before this one."""


class AsyncWitness:
    """The network side's view of the witness; every call raises what refused it, or WITNESS_UNREACHABLE."""

    def __init__(self, path: str | Path = WITNESS_SOCKET, *, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        self._path = str(path)
        self._timeout_seconds = timeout_seconds

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""
        message = message_class(WITNESS_REQUEST)(correlation_id=correlation_id)
        message.identify.SetInParent()
        return bytes((await self._ask(message)).identity)

    async def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, correlation_id: str) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came."""
        message = message_class(WITNESS_REQUEST)(correlation_id=correlation_id)
        message.testify.challenge = challenge
        message.testify.exporter = exporter
        message.testify.spki_sha256 = spki_sha256
        return bytes((await self._ask(message)).testimony)

    async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
        """Return a document in Constellation's form over ``nonce``."""
        message = message_class(WITNESS_REQUEST)(correlation_id=correlation_id)
        message.constellation.nonce = nonce
        return bytes((await self._ask(message)).document)

    async def _ask(self, message: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return _answer_of(await self._exchange(frame(message.SerializeToString())))
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise SystemFault(
                f"expected the witness at {self._path}, got {type(error).__name__}: {error}",
                reason=Reason.WITNESS_UNREACHABLE,
            ) from error

    async def _exchange(self, sent: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(sent)
            await writer.drain()
            return await read_frame(reader)
        finally:
            writer.close()


def _answer_of(data: bytes) -> Any:
    response = parse(WITNESS_RESPONSE, data)
    kind = response.WhichOneof("answer")
    if kind is None:
        raise Refusal("expected an answer of the witness, got none", reason=Reason.MESSAGE_MALFORMED)
    if kind == "refusal":
        known = Reason.__members__.get(response.refusal.code, Reason.INTERNAL)
        raise Refusal(response.refusal.message, reason=known)
    return response
