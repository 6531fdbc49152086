# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Splice two connections: forward bytes in both directions until both sides have closed.

Only one piece is buffered per direction, so a slow receiver slows its sender. The close of one direction is forwarded,
and a broken connection breaks the other connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 1 << 16
LINGER_SECONDS = 60.0
"""How long a connection with one closed direction may be without data."""


class Splice:
    """Joins the connection of a client and a connection to a control plane."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        *,
        answered: Callable[[], None],
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """Store two connected non-blocking sockets.

        ``answered`` is called when the server sends its first bytes.
        """
        self._client = client
        self._server = server
        self._answered = answered
        self._linger_seconds = linger_seconds
        self.sent = 0
        self.received = 0
        self.has_answered = False
        self.server_ended = False
        self.server_broke = False

    async def run(self, first: bytes) -> None:
        """Send ``first``, then forward bytes until both sides have closed or one broke.

        The caller closes the sockets. If a connection broke or lingered, both sockets are set to reset their
        connections.
        """
        try:
            await self._to_server(first)
            good = await self._pump_both()
        except OSError:
            good = False
        if not good:
            abort(self._client)
            abort(self._server)

    async def _pump_both(self) -> bool:
        """Return True if both directions were closed, False after the linger time; raises `OSError` if one broke."""
        tasks = {asyncio.create_task(self._up()), asyncio.create_task(self._down())}
        try:
            return await self._until_ended(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_ended(self, tasks: set[asyncio.Task[None]]) -> bool:
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        _raise_of(done)
        while left:
            moved = self.sent + self.received
            done, left = await asyncio.wait(left, timeout=self._linger_seconds)
            _raise_of(done)
            if left and moved == self.sent + self.received:
                return False
        return True

    async def _up(self) -> None:
        loop = asyncio.get_running_loop()
        while piece := await loop.sock_recv(self._client, PIECE_BYTES):
            await self._to_server(piece)
        self._server.shutdown(socket.SHUT_WR)

    async def _down(self) -> None:
        loop = asyncio.get_running_loop()
        while piece := await self._from_server():
            if not self.has_answered:
                self.has_answered = True
                self._answered()
            await loop.sock_sendall(self._client, piece)
            self.received += len(piece)
        self._client.shutdown(socket.SHUT_WR)

    async def _to_server(self, piece: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._server, piece)
        except OSError:
            self.server_broke = True
            raise
        self.sent += len(piece)

    async def _from_server(self) -> bytes:
        try:
            piece = await asyncio.get_running_loop().sock_recv(self._server, PIECE_BYTES)
        except OSError:
            self.server_broke = True
            raise
        self.server_ended = not piece
        return piece


def _raise_of(done: set[asyncio.Task[None]]) -> None:
    for task in done:
        task.result()


def abort(connection: socket.socket) -> None:
    """Make the close of ``connection`` a reset, so that the peer does not take a break for a regular end."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
