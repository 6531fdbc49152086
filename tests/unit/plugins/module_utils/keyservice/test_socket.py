# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key service's socket: who is heard, what is a frame, and what a caller learns of an error."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import (
    REQUEST,
    AsyncKeyClient,
    KeyClient,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import (
    MAX_FRAME_BYTES,
    RESPONSE,
    Caller,
    Service,
    SocketServer,
    answer_of,
    caller_gone,
    frame,
    peer_user,
    refusal_answer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ME = os.getuid()


class Bed:
    """A server at a path, and the users that it sent away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent_away: list[int] = []
        self.connections: list[object] = []
        self.server: SocketServer | None = None

    async def healthy(self, message: bytes) -> bytes:
        self.connections.append(caller_gone())  # bound to the stream of the connection
        response = message_class(RESPONSE)()
        response.health.ready = True
        response.health.state = f"heard {len(message)} bytes"
        return bytes(response.SerializeToString())

    async def start(self, allowed: frozenset[int] = frozenset({ME})) -> None:
        self.server = SocketServer(
            self.path, handler=self.healthy, allowed=allowed, group=os.getgid(), refused=self.sent_away.append
        )
        await self.server.start()


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    made = Bed(tmp_path / "key.sock")
    yield made
    if made.server is not None:
        await made.server.stop()
        assert not made.path.exists()


async def test_a_known_user_is_answered(bed: Bed) -> None:
    await bed.start()
    health = await AsyncKeyClient(bed.path).health()
    assert (health.ready, health.state) == (True, "heard 2 bytes")
    assert await asyncio.to_thread(KeyClient(bed.path).health) == health
    assert bed.path.stat().st_mode & 0o777 == 0o660


async def test_a_caller_keeps_its_connection_and_replaces_one_that_was_closed(bed: Bed) -> None:
    await bed.start()
    caller = AsyncKeyClient(bed.path)
    for _unused in range(2):
        await caller.health()
    assert bed.server is not None
    await bed.server.stop()
    await bed.start()
    assert (await caller.health()).ready
    first, second, third = bed.connections
    assert first == second != third


async def test_a_caller_that_keeps_nothing_takes_a_connection_for_each_call(bed: Bed) -> None:
    await bed.start()
    service = Service(path=bed.path, name="a service", absent=Reason.WITNESS_UNREACHABLE, timeout_seconds=5.0)
    caller = Caller(service, response_name=RESPONSE)
    for _unused in range(2):
        message = message_class(REQUEST)()
        message.health.SetInParent()
        await caller.call(message)
    first, second = bed.connections
    assert first != second


async def test_who_answers_knows_that_the_caller_has_hung_up(bed: Bed) -> None:
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def handler(message: bytes) -> bytes:
        gone = caller_gone()
        assert not gone()
        asked.set()
        await hung_up.wait()
        for _unused in range(500):
            if gone():
                seen.append(message)
                break
            await asyncio.sleep(0.01)
        return message

    seen: list[bytes] = []
    bed.server = SocketServer(
        bed.path, handler=handler, allowed=frozenset({ME}), group=os.getgid(), refused=bed.sent_away.append
    )
    await bed.server.start()
    waiting = asyncio.create_task(AsyncKeyClient(bed.path).health())
    await asked.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    hung_up.set()
    for _unused in range(500):
        if seen:
            break
        await asyncio.sleep(0.01)
    assert len(seen) == 1


async def test_another_user_is_sent_away_unheard(bed: Bed) -> None:
    await bed.start(frozenset({ME + 1}))
    with pytest.raises(Refusal) as caught:
        await AsyncKeyClient(bed.path).health()
    assert caught.value.code == "KEY_SERVICE_CALLER_UNKNOWN"
    assert bed.sent_away == [ME]


async def test_a_frame_of_a_foolish_length_is_refused_before_it_is_read(bed: Bed) -> None:
    await bed.start()
    reader, writer = await asyncio.open_unix_connection(str(bed.path))
    writer.write((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    length = int.from_bytes(await reader.readexactly(4), "big")
    with pytest.raises(Refusal) as caught:
        answer_of(await reader.readexactly(length))
    assert caught.value.code == "MESSAGE_TOO_LARGE"
    assert await reader.read() == b""
    writer.close()


async def test_a_caller_that_ends_within_a_frame_harms_nobody(bed: Bed) -> None:
    await bed.start()
    for piece in (b"", b"\x00\x00", frame(b"whole")[:-1]):
        _unused, writer = await asyncio.open_unix_connection(str(bed.path))
        writer.write(piece)
        writer.close()
    assert (await AsyncKeyClient(bed.path).health()).ready


async def test_the_socket_of_a_killed_service_is_replaced(bed: Bed) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(bed.path))
    await bed.start()
    assert (await AsyncKeyClient(bed.path).health()).ready


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda path: None, id="no socket"),
        pytest.param(lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), id="a socket that nobody serves"),
    ],
)
async def test_an_absent_service_is_named(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    path = tmp_path / "key.sock"
    prepare(path)
    with pytest.raises(AttestedError) as caught:
        await AsyncKeyClient(path).health()
    assert caught.value.code == "KEY_SERVICE_UNREACHABLE"
    with pytest.raises(AttestedError) as blocking:
        await asyncio.to_thread(KeyClient(path).health)
    assert blocking.value.code == "KEY_SERVICE_UNREACHABLE"


async def test_a_service_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, str(tmp_path / "key.sock"))
    with pytest.raises(AttestedError) as caught:
        await AsyncKeyClient(tmp_path / "key.sock", timeout_seconds=0.05).health()
    assert caught.value.code == "KEY_SERVICE_UNREACHABLE"
    server.close()


def test_an_error_crosses_the_socket_with_code_and_story() -> None:
    with pytest.raises(Refusal) as caught:
        answer_of(refusal_answer(Refusal("expected A, got B", reason=Reason.CSR_NAME_MISMATCH)))
    assert (caught.value.code, caught.value.message) == ("CSR_NAME_MISMATCH", "expected A, got B")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", "MESSAGE_MALFORMED", id="an empty answer"),
        pytest.param(b"\xff", "MESSAGE_MALFORMED", id="an answer that is none"),
    ],
)
def test_an_answer_that_says_nothing_is_an_error(data: bytes, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        answer_of(data)
    assert caught.value.code == code


def test_a_code_of_a_newer_release_is_not_lost_but_internal() -> None:
    response = message_class(RESPONSE)()
    response.refusal.code = "NEW_CODE"
    response.refusal.message = "something new"
    with pytest.raises(Refusal) as caught:
        answer_of(response.SerializeToString())
    assert (caught.value.code, caught.value.message) == ("INTERNAL", "something new")


def test_the_kernel_says_who_calls() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_user(one) == ME
