# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Frames on the key service's socket: 4 bytes of length (big-endian), then one message, at most 1 MiB."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, Refusal, SystemFault
from ..proto.messages import message_class, parse
from ..reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path


MAX_FRAME_BYTES = 1 << 20
SOCKET = "/run/attested/key-service.sock"

REQUEST = "attested.v1.KeyServiceRequest"
RESPONSE = "attested.v1.KeyServiceResponse"

_LENGTH_BYTES = 4


def frame(message: bytes) -> bytes:
    """Return ``message`` behind its length; raises MESSAGE_TOO_LARGE."""
    return _bounded(len(message)).to_bytes(_LENGTH_BYTES, "big") + message


def frame_length(head: bytes) -> int:
    """Return how many bytes follow the first four; raises MESSAGE_TOO_LARGE before any of them is read."""
    return _bounded(int.from_bytes(head, "big"))


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next message; raises MESSAGE_TOO_LARGE, and IncompleteReadError at the end of the stream."""
    return await reader.readexactly(frame_length(await reader.readexactly(_LENGTH_BYTES)))


def refusal_answer(error: AttestedError) -> bytes:
    """Return the response that carries an error: code and story for the log, coarse text for the peer."""
    response = message_class(RESPONSE)()
    response.refusal.code = error.code
    response.refusal.message = error.message
    response.refusal.coarse = error.reason.value.coarse.value
    response.refusal.retry_after_milliseconds = math.ceil(error.retry_after_seconds * 1000)
    return bytes(response.SerializeToString())


def answer_of(data: bytes, response_name: str = RESPONSE) -> Any:
    """Return the parsed response; raises the `Refusal` that it carries, under the same reason, or MESSAGE_MALFORMED."""
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


# Asking a service of ours over its unix socket, one connection a question.


class SocketAsker:
    """Asks whoever listens at a path and takes answers of one message type."""

    def __init__(
        self, path: str | Path, *, response_name: str, timeout_seconds: float, whose: str, absent: Reason
    ) -> None:
        """``whose`` service listens there, in words; ``absent`` is the reason where it does not answer in time."""
        self._path = str(path)
        self._response_name = response_name
        self._timeout_seconds = timeout_seconds
        self._whose = whose
        self._absent = absent

    async def ask(self, message: Any) -> Any:
        """Return the answer to ``message``; raises the `Refusal` that it carries, and ``absent``."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return answer_of(await self._exchange(frame(message.SerializeToString())), self._response_name)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise SystemFault(
                f"expected {self._whose} at {self._path}, got {type(error).__name__}: {error}", reason=self._absent
            ) from error

    async def _exchange(self, sent: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(sent)
            await writer.drain()
            return await read_frame(reader)
        finally:
            writer.close()
