# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network that delays: a relay that takes its time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK = 1 << 16


@asynccontextmanager
async def slow_relay(port: int, *, round_trip: float) -> AsyncIterator[int]:
    """Yield a port that leads to ``port`` of this machine; each piece arrives half a ``round_trip`` later."""
    going: set[asyncio.Task[None]] = set()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond = await asyncio.open_connection("127.0.0.1", port)
        going.update(
            asyncio.create_task(_late(*pair, seconds=round_trip / 2))
            for pair in ((reader, beyond[1]), (beyond[0], writer))
        )

    server = await asyncio.start_server(through, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
        for one in going:
            one.cancel()


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, seconds: float) -> None:
    """Pass everything on, each piece when it is due; what follows does not wait for what was before."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(due - loop.time())
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)

    delivering = asyncio.create_task(deliver())
    with suppress(OSError):
        piece = b"more"
        while piece:
            piece = await reader.read(_CHUNK)
            pieces.put_nowait((loop.time() + seconds, piece))
        await delivering
    delivering.cancel()
    writer.close()
