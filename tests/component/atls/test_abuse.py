# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What strangers may do to a relay while good machines pass."""

from __future__ import annotations

import asyncio
import gc
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import Limits
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import TlsSession
from ansible_collections.attested.kubernetes.tests.support.atls import QUICK, Bed, pieces, running_bed, settled
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HALF_OPEN = 200
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    """A relay with its service, patient enough for a machine that does ten other things."""
    async with running_bed(limits=replace(QUICK, handshake_seconds=60)) as running:
        yield running


def client_hello() -> bytes:
    """Return what a TLS client sends first."""
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    connection.set_connect_state()
    with pytest.raises(SSL.WantReadError):
        connection.do_handshake()
    return connection.bio_read(1 << 16)


async def opened(bed: Bed, count: int, first: bytes = b"") -> list[Stream]:
    """Open connections that send ``first`` and then nothing."""
    streams = [await asyncio.open_connection("127.0.0.1", bed.port) for _unused in range(count)]
    for _unused, writer in streams:
        writer.write(first)
    return streams


def closed(streams: list[Stream]) -> None:
    """Close them."""
    for _unused, writer in streams:
        writer.transport.abort()


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="idle connections"),
        pytest.param(client_hello()[:100], id="half a ClientHello"),
        pytest.param(client_hello(), id="half-open after a full ClientHello"),
    ],
)
async def test_good_machines_pass_while_strangers_wait(bed: Bed, first: bytes) -> None:
    """Two hundred connections that go nowhere keep nobody out, and leave nothing behind when they go."""
    strangers = await opened(bed, HALF_OPEN, first)
    await settled(lambda: bed.listener.unverified == HALF_OPEN)
    assert all(await asyncio.gather(*(bed.say() for _unused in range(5))))
    assert bed.listener.unverified >= HALF_OPEN
    closed(strangers)
    await settled(lambda: bed.listener.unverified == 0)


async def test_a_connection_that_ended_is_kept_by_no_timer(bed: Bed) -> None:
    """A session of TLS takes 70 KB, and the time that a stranger has to prove himself outlives his connection."""

    def sessions() -> int:
        gc.collect()
        return sum(isinstance(one, TlsSession) for one in gc.get_objects())

    before = sessions()
    for _unused in range(5):
        assert await bed.say()
    await settled(lambda: bed.listener.unverified == bed.listener.served == 0)
    assert sessions() == before


@pytest.mark.parametrize("first", [b"", client_hello()], ids=["nothing said", "half-open"])
async def test_a_silent_stranger_is_dropped_in_time(first: bytes) -> None:
    """By the limit, with its reason."""
    async with running_bed(limits=Limits(handshake_seconds=0.3)) as bed:
        strangers = await opened(bed, 3, first)
        await settled(lambda: bed.events.reasons("connection_failed") == ["CONNECTION_TIMEOUT"] * 3)
        await settled(lambda: bed.listener.unverified == 0)
        closed(strangers)


async def test_the_oldest_strangers_give_way() -> None:
    """With every place taken, a good machine still gets one."""
    limits = Limits(unverified=20, unverified_per_source=10, rejection_floor_seconds=0.05)
    async with running_bed(limits=limits) as bed:
        strangers = await opened(bed, 50, client_hello())
        await settled(lambda: bed.listener.unverified == 10)
        assert await bed.say()
        assert set(bed.events.reasons("connection_failed")) == {"CONNECTION_LIMIT"}
        closed(strangers)


async def test_an_address_that_comes_too_often_is_turned_away_and_others_are_not() -> None:
    """Before a place is taken, a byte is read or a line is written; with time it may come again."""
    limits = Limits(arrivals_per_second=2, arrival_burst=3, rejection_floor_seconds=0.05)
    async with running_bed(limits=limits) as bed:
        strangers = await opened(bed, 5, client_hello())
        await settled(lambda: (bed.listener.unverified, bed.listener.turned_away) == (3, 2))
        assert bed.events.reasons("connection_failed") == []
        other = await asyncio.open_connection("127.0.0.1", bed.port, local_addr=("127.0.0.2", 0))
        await settled(lambda: bed.listener.unverified == 4)
        await asyncio.sleep(1)
        assert await bed.say()
        closed([*strangers, other])


async def test_a_dripping_hello_ends_in_time() -> None:
    """A byte now and then does not extend the time."""
    async with running_bed(limits=Limits(handshake_seconds=0.5)) as bed:
        ((reader, writer),) = await opened(bed, 1)

        async def drip() -> None:
            for piece in pieces(client_hello(), 1):
                writer.write(piece)
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        with suppress(ConnectionResetError):  # the last byte may come to a closed socket
            assert await asyncio.wait_for(reader.read(), 30) == b""
        dripping.cancel()
        assert bed.events.reasons("connection_failed") == ["CONNECTION_TIMEOUT"]
        writer.transport.abort()


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2 without TLS"),
        pytest.param(b"\x16\x03\x01\xff\xff" + bytes(70_000), id="an oversized record"),
        pytest.param(b"\x16\x03\x01\x00\x00" * 1000, id="empty records"),
        pytest.param(bytes(range(255, -1, -1)) * 20, id="bytes of no protocol"),
    ],
)
async def test_junk_is_closed_at_once(bed: Bed, junk: bytes) -> None:
    """Without an answer, with one reason in the log."""
    ((reader, writer),) = await opened(bed, 1, junk)
    with suppress(ConnectionResetError):  # our end may close with bytes still unread
        assert await asyncio.wait_for(reader.read(), 30) == b""
    assert bed.events.reasons("connection_failed") == ["CLIENT_HELLO_MALFORMED"]
    writer.transport.abort()


async def test_mutated_hellos_leave_it_healthy(bed: Bed) -> None:
    """Three hundred of them, each changed in a few bytes."""
    chance = random.Random(7)
    hello = client_hello()
    for _unused in range(300):
        mutated = bytearray(hello)
        for _unused in range(3):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        ((_unused, writer),) = await opened(bed, 1, bytes(mutated))
        await asyncio.sleep(0)
        closed([(_unused, writer)])
    assert await bed.say()
    await settled(lambda: bed.listener.unverified == 0)
    assert "INTERNAL" not in bed.events.reasons("connection_failed")


async def test_resets_leave_it_healthy(bed: Bed) -> None:
    """Connect, three bytes, reset: no task and no slot remains."""
    for _unused in range(200):
        closed(await opened(bed, 1, b"\x16\x03\x01"))
    assert await bed.say()
    await settled(lambda: bed.listener.unverified == 0)
    assert set(bed.events.reasons("connection_failed")) <= {"CONNECTION_CLOSED"}


async def test_a_dripping_stranger_is_dropped_in_time() -> None:
    """The deadline counts from the first byte, however often another one comes."""
    async with running_bed(limits=Limits(handshake_seconds=0.6)) as bed:
        strangers = await opened(bed, 3)
        dripped = 0
        for byte in client_hello()[:200]:
            for _unused, writer in strangers:
                with suppress(ConnectionError):
                    writer.write(bytes([byte]))
            dripped += 1
            await asyncio.sleep(0.02)
            if bed.listener.unverified == 0:
                break
        assert 0 < dripped < 200
        assert bed.events.reasons("connection_failed") == ["CONNECTION_TIMEOUT"] * 3
        closed(strangers)
