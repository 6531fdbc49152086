# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking a service of ours over its unix socket, one connection a question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..errors import SystemFault
from .framing import answer_of, frame, read_frame

if TYPE_CHECKING:
    from pathlib import Path

    from ..reasons import Reason


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
