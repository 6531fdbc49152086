# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two connections made one, over real sockets: bytes, ends and breaks go through as what they are."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_splice import Splice, abort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PATIENCE_SECONDS = 20.0
"""Nothing here takes that long; it bounds what never comes."""


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _address = listener.accept()
    near.setblocking(False)
    far.setblocking(False)
    return near, far


def lingers(connection: socket.socket) -> bool:
    """Say whether closing it is more than its end."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) != bytes(8)


class Bed:
    """A splice between two connections; ``client`` and ``server`` are the ends that others hold."""

    def __init__(self) -> None:
        self.client, self._to_client = connected()
        self._to_server, self.server = connected()
        self.answers = 0
        self.linger_seconds = PATIENCE_SECONDS
        self.splice: Splice | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, first: bytes = b"") -> Splice:
        self.splice = Splice(
            self._to_client, self._to_server, answered=self._answered, linger_seconds=self.linger_seconds
        )
        self._task = asyncio.create_task(self.splice.run(first))
        return self.splice

    def _answered(self) -> None:
        self.answers += 1

    async def ended(self) -> bool:
        """Wait for the splice, then close its sockets, as its caller does; return whether in peace."""
        assert self._task is not None
        await asyncio.wait_for(self._task, PATIENCE_SECONDS)
        peace = not any(lingers(one) for one in (self._to_client, self._to_server))
        self._to_client.close()
        self._to_server.close()
        return peace

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for one in (self.client, self._to_client, self._to_server, self.server):
            one.close()


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    made = Bed()
    yield made
    made.close()


async def send(end: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(end, data)


async def read(end: socket.socket, size: int = 0) -> bytes:
    """Return ``size`` bytes, or everything up to the end; "reset" where the connection broke."""
    data = b""
    try:
        while not size or len(data) < size:
            piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(end, 1 << 20), PATIENCE_SECONDS)
            if not piece:
                break
            data += piece
    except ConnectionResetError:
        return b"reset"
    return data


def end(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    abort(connection)
    connection.close()


async def is_broken(end: socket.socket) -> bool:
    """Say whether an end that was told of an end can send no more; one that was closed in peace takes a byte still."""
    try:
        await send(end, b"x")
    except OSError:
        return True
    return False


def told(splice: Splice) -> dict[str, Any]:
    return {
        "sent": splice.sent,
        "received": splice.received,
        "answered": splice.has_answered,
        "ended": splice.server_ended,
        "broke": splice.server_broke,
    }


async def test_bytes_and_ends_go_through_and_are_counted(bed: Bed) -> None:
    splice = bed.start(b"hello ")
    assert await read(bed.server, 6) == b"hello "
    assert (bed.answers, splice.has_answered, splice.server_ended) == (0, False, False)
    await send(bed.client, b"server")
    assert await read(bed.server, 6) == b"server"
    for answer in (b"one", b"two"):
        await send(bed.server, answer)
        assert await read(bed.client, 3) == answer
    end(bed.client)
    assert await read(bed.server) == b""
    await send(bed.server, b"last")
    end(bed.server)
    assert await read(bed.client) == b"last"
    assert await bed.ended()
    assert told(splice) == {"sent": 12, "received": 10, "answered": True, "ended": True, "broke": False}
    assert bed.answers == 1


async def test_more_than_one_piece_arrives_to_the_byte(bed: Bed) -> None:
    data = bytes(range(256)) * 4096
    bed.start()
    sending = asyncio.create_task(send(bed.client, data))
    assert await read(bed.server, len(data)) == data
    await sending


async def test_the_server_may_end_first(bed: Bed) -> None:
    splice = bed.start()
    end(bed.server)
    assert await read(bed.client) == b""
    await send(bed.client, b"still")
    end(bed.client)
    assert await read(bed.server) == b"still"
    assert await bed.ended()
    assert told(splice) == {"sent": 5, "received": 0, "answered": False, "ended": True, "broke": False}


async def test_two_that_end_without_a_word_end_in_peace(bed: Bed) -> None:
    splice = bed.start()
    end(bed.client)
    assert await read(bed.server) == b""
    end(bed.server)
    assert await bed.ended()
    assert told(splice) == {"sent": 0, "received": 0, "answered": False, "ended": True, "broke": False}


async def test_a_server_that_breaks_breaks_the_client(bed: Bed) -> None:
    splice = bed.start(b"hello")
    assert await read(bed.server, 5) == b"hello"
    reset(bed.server)
    await bed.ended()
    assert await read(bed.client) == b"reset"
    assert (splice.server_broke, splice.server_ended) == (True, False)


async def test_a_client_that_breaks_breaks_the_server(bed: Bed) -> None:
    splice = bed.start(b"hello")
    assert await read(bed.server, 5) == b"hello"
    reset(bed.client)
    await bed.ended()
    assert await read(bed.server) == b"reset"
    assert (splice.server_broke, splice.server_ended) == (False, False)


async def test_a_break_after_the_other_sides_end_is_no_end(bed: Bed) -> None:
    splice = bed.start()
    end(bed.client)
    assert await read(bed.server) == b""
    reset(bed.server)
    await bed.ended()
    assert (await read(bed.client), splice.server_broke) == (b"reset", True)


async def test_a_server_that_is_gone_before_the_first_bytes_is_told_as_broken(bed: Bed) -> None:
    bed._to_server.shutdown(socket.SHUT_WR)
    splice = bed.start(b"hello")
    await bed.ended()
    assert told(splice) == {"sent": 0, "received": 0, "answered": False, "ended": False, "broke": True}
    assert await read(bed.client) == b"reset"
    assert await is_broken(bed.server)


def client_ends(bed: Bed) -> socket.socket:
    end(bed.client)
    return bed.server


def server_ends(bed: Bed) -> socket.socket:
    end(bed.server)
    return bed.client


@pytest.mark.parametrize("ends", [client_ends, server_ends])
async def test_a_half_that_stands_still_for_too_long_is_broken(bed: Bed, ends: Callable[[Bed], socket.socket]) -> None:
    bed.linger_seconds = 0.05
    splice = bed.start(b"hello")
    await send(bed.server, b"answer")
    assert (await read(bed.server, 5), await read(bed.client, 6)) == (b"hello", b"answer")
    other = ends(bed)
    await bed.ended()
    assert (splice.sent, splice.received) == (5, 6)
    assert await read(bed.client if other is bed.server else bed.server) == b"reset"
    assert await is_broken(other)


@pytest.mark.parametrize("ends", [client_ends, server_ends])
async def test_a_half_that_moves_lives_on(
    bed: Bed, ends: Callable[[Bed], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of each wait for the half that is left, that half moves a byte: twice, then it ends."""
    wait, moved = asyncio.wait, []

    async def waited(tasks: Any, **how: Any) -> Any:
        if "timeout" not in how or len(moved) == 2:
            return await wait(tasks, **how)
        await send(other, b"m")
        moved.append(await read(bed.client if other is bed.server else bed.server, 1))
        if len(moved) == 2:
            end(other)
        return set(), tasks

    splice = bed.start(b"hello")
    await send(bed.server, b"answer")
    assert (await read(bed.server, 5), await read(bed.client, 6)) == (b"hello", b"answer")
    monkeypatch.setattr(asyncio, "wait", waited)
    other = ends(bed)
    await bed.ended()
    assert (moved, splice.sent + splice.received) == ([b"m", b"m"], 13)
    assert await read(bed.client if other is bed.server else bed.server) == b""


def test_what_is_closed_already_needs_no_abort() -> None:
    one, other = connected()
    one.close()
    abort(one)
    other.close()
