# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gRPC server of a service over its real socket: bytes, statuses, limits, stop."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import (
    Call,
    ServerLimits,
    UnixServer,
)
from ansible_collections.attested.kubernetes.tests.support.atls import settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIMITS = ServerLimits(message_bytes=10_000, metadata_bytes=8_192, calls=2, streams=4)


@dataclass
class Seat:
    """A caller as the relay would know it; ``told`` is what it heard of its calls."""

    source: str = "192.0.2.7"
    is_known: bool = False
    told: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.told.append("begin")

    def end(self) -> None:
        self.told.append("end")

    def refused(self) -> None:
        self.told.append("refused")


class Handlers:
    """What the server is asked to do, one method for each way a call can end."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, Call]] = []
        self.release = asyncio.Event()

    async def echo(self, request: bytes, call: Call) -> bytes:
        self.seen.append((request, call))
        call.line.set(node="w-1")
        return request[::-1]

    async def refuse(self, request: bytes, call: Call) -> bytes:
        del call
        raise Refusal(f"secret story of {request!r}", reason=Reason[request.decode()], retry_after_seconds=0.2004)

    async def explode(self, request: bytes, call: Call) -> bytes:
        del request, call
        raise ZeroDivisionError("secret story")

    async def hold(self, request: bytes, call: Call) -> bytes:
        del call
        await self.release.wait()
        return request


class Bed:
    """A running server, its log and a channel to it."""

    def __init__(self, path: Path, limits: ServerLimits) -> None:
        self.path = path
        self.handlers = Handlers()
        self.written = io.StringIO()
        self.seat: Seat | None = None
        self.server = UnixServer(
            socket_path=path,
            handlers={f"/t.T/{name}": getattr(self.handlers, name) for name in ("echo", "refuse", "explode", "hold")},
            log=open_log(stream=self.written, environ={}),
            limits=limits,
            callers=lambda _peer: self.seat,
        )
        self.channel: Any = None

    async def call(self, name: str, request: bytes = b"", **options: Any) -> Any:
        return await self.channel.unary_unary(f"/t.T/{name}")(request, timeout=5, **options)

    async def error(self, name: str, request: bytes = b"", **options: Any) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(name, request, **options)
        return caught.value

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.getvalue().splitlines()]


@pytest.fixture
def opt_limits() -> ServerLimits:
    """Small ones."""
    return LIMITS


@pytest.fixture
async def bed(tmp_path: Path, opt_limits: ServerLimits) -> AsyncIterator[Bed]:
    """A running server."""
    running = Bed(tmp_path / "s", opt_limits)
    await running.server.start()
    async with grpc.aio.insecure_channel(f"unix:{running.path}") as channel:
        running.channel = channel
        yield running
    await running.server.stop()


async def test_bytes_arrive_as_sent(bed: Bed) -> None:
    """Request and binary metadata are untouched; the log has one line of it."""
    request = bytes(range(256))
    answer = await bed.call("echo", request, metadata=(("attested-binding-bin", b"\x00\xff"), ("plain", "x")))
    ((seen, call),) = bed.handlers.seen
    assert (answer, seen) == (request[::-1], request)
    assert (call.metadata["attested-binding-bin"], call.metadata["plain"]) == (b"\x00\xff", "x")
    (line,) = bed.lines()
    assert (line["event"], line["method"], line["outcome"], line["node"]) == ("call", "/t.T/echo", "ok", "w-1")
    assert line["correlation_id"] == call.correlation_id


@pytest.mark.parametrize(
    ("name", "request_bytes", "status", "text"),
    [
        pytest.param("refuse", b"EVIDENCE_MISSING", "PERMISSION_DENIED", "attestation refused", id="a refusal"),
        pytest.param("refuse", b"NONCE_MALFORMED", "INVALID_ARGUMENT", "request not understood", id="bad input"),
        pytest.param("refuse", b"BACKEND_UNREACHABLE", "UNAVAILABLE", "service not ready, try again", id="not ready"),
        pytest.param("refuse", b"FILE_UNUSABLE", "UNAVAILABLE", "service not ready, try again", id="own trouble"),
        pytest.param(
            "refuse", b"CHALLENGE_RATE", "RESOURCE_EXHAUSTED", "too many requests, try again later", id="too often"
        ),
        pytest.param("explode", b"", "UNAVAILABLE", "service not ready, try again", id="an unexpected error"),
    ],
)
async def test_errors_become_statuses_once(bed: Bed, name: str, request_bytes: bytes, status: str, text: str) -> None:
    """The peer gets the coarse text and the correlation id, the log the story under the same id."""
    error = await bed.error(name, request_bytes)
    assert (error.code().name, error.details()) == (status, text)
    (line,) = bed.lines()
    assert dict(error.trailing_metadata())["attested-correlation-id"] == line["correlation_id"]
    assert line["outcome"] in {"refused", "failed"}
    assert line["reason"] == (request_bytes.decode() or "INTERNAL")


async def test_who_is_too_fast_is_told_when_to_ask_again(bed: Bed) -> None:
    error = await bed.error("refuse", b"IDENTITY_RATE")
    assert dict(error.trailing_metadata())["attested-retry-after-milliseconds"] == "201"
    error = await bed.error("refuse", b"EVIDENCE_MISSING")
    assert "attested-retry-after-milliseconds" not in dict(error.trailing_metadata())


@pytest.mark.parametrize(
    ("name", "options", "status"),
    [
        pytest.param("none", {}, "UNIMPLEMENTED", id="a path that nobody serves"),
        pytest.param("echo", {"request": bytes(10_001)}, "RESOURCE_EXHAUSTED", id="a message over the limit"),
        pytest.param(
            "echo", {"metadata": (("x-bin", bytes(9000)),)}, "RESOURCE_EXHAUSTED", id="metadata over the limit"
        ),
    ],
)
async def test_limits_hold_before_a_handler_runs(bed: Bed, name: str, options: dict[str, Any], status: str) -> None:
    """Nothing of it is parsed, nothing of it is logged as a call."""
    error = await bed.error(name, **options)
    assert (error.code().name, bed.handlers.seen, bed.lines()) == (status, [], [])


async def test_too_many_calls_at_once_are_told(bed: Bed) -> None:
    """The third of two; and there is room again afterwards."""
    held = [asyncio.create_task(bed.call("hold")) for _unused in range(2)]
    await settled(lambda: bed.server.calls == 2)
    assert (await bed.error("echo")).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    bed.handlers.release.set()
    await asyncio.gather(*held)
    assert await bed.call("echo", b"ab") == b"ba"


async def test_a_call_is_counted_from_its_message_to_its_decision(bed: Bed) -> None:
    """The seat of its caller hears of it, and of a refusal once the peer was told."""
    bed.seat = Seat()
    await bed.call("echo", b"ab")
    await bed.error("refuse", b"EVIDENCE_MISSING")
    await settled(lambda: len(bed.seat.told) == 5)
    assert bed.seat.told == ["begin", "end", "begin", "end", "refused"]
    assert bed.server.calls == 0


class TestPlaces:
    """Five calls at once, of strangers three, two a source."""

    @pytest.fixture
    def opt_limits(self) -> ServerLimits:
        """With streams for all."""
        return ServerLimits(calls=5, calls_reserved=2, calls_per_source=2, streams=16)

    @pytest.mark.parametrize(
        ("running", "caller", "served"),
        [
            pytest.param("aa", Seat("b"), True, id="a stranger of another source"),
            pytest.param("aa", Seat("a"), False, id="a stranger of a source that has its share"),
            pytest.param("aab", Seat("c"), False, id="a stranger where strangers have theirs"),
            pytest.param("aab", Seat("a", is_known=True), True, id="one that is known, whatever its source"),
            pytest.param("aab", None, True, id="a process of this machine"),
        ],
    )
    async def test_who_is_served(self, bed: Bed, running: str, caller: Seat | None, *, served: bool) -> None:
        held = []
        for number, source in enumerate(running):
            bed.seat = Seat(source)
            held.append(asyncio.create_task(bed.call("hold")))
            await settled(lambda number=number: bed.server.calls == number + 1)
        bed.seat = caller
        if served:
            assert await bed.call("echo", b"ab") == b"ba"
        else:
            error = await bed.error("echo")
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert bed.lines()[-1]["reason"] == "CALL_LIMIT"
        bed.handlers.release.set()
        await asyncio.gather(*held)


class TestSilence:
    """Calls that begin and bring no message, with little time to do so."""

    @pytest.fixture
    def opt_limits(self) -> ServerLimits:
        """Two calls at once."""
        return ServerLimits(calls=2, request_seconds=0.3, streams=16)

    async def test_it_holds_no_place_and_ends_in_time(self, bed: Bed) -> None:
        """Others are served meanwhile; each silent one is told, and is one line of the log."""

        async def silence() -> AsyncIterator[bytes]:
            await asyncio.sleep(30)
            yield b""

        silent = [bed.channel.stream_unary("/t.T/echo")(silence(), timeout=20) for _unused in range(8)]
        assert await bed.call("echo", b"ab") == b"ba"
        for one in silent:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await one
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        reasons = [line.get("reason") for line in bed.lines()]
        assert sorted(map(str, reasons)) == ["None", *["REQUEST_INCOMPLETE"] * 8]


class TestRefused:
    """With one call at once and a floor under refusals."""

    @pytest.fixture
    def opt_limits(self) -> ServerLimits:
        """Long enough to be seen."""
        return ServerLimits(calls=1, refusal_floor_seconds=20)

    async def test_a_refusal_that_waits_holds_no_place(self, bed: Bed) -> None:
        """The next call is served while it does."""
        waiting = asyncio.create_task(bed.call("refuse", b"EVIDENCE_MISSING"))
        await settled(lambda: bool(bed.lines()))
        assert await bed.call("echo", b"ab") == b"ba"
        waiting.cancel()


class TestImpatience:
    """With little time for a call."""

    @pytest.fixture
    def opt_limits(self) -> ServerLimits:
        """A tenth of a second."""
        return ServerLimits(call_seconds=0.1)

    async def test_no_answer_in_time_is_unavailable(self, bed: Bed) -> None:
        """The peer may try again; the log says what it was."""
        assert (await bed.error("hold")).code() is grpc.StatusCode.UNAVAILABLE
        assert [line["reason"] for line in bed.lines()] == ["REQUEST_TIMEOUT"]


class TestFloor:
    """With a floor, refusals come late and answers do not."""

    @pytest.fixture
    def opt_limits(self) -> ServerLimits:
        """A floor of 0.3 s."""
        return ServerLimits(refusal_floor_seconds=0.3)

    async def test_no_refusal_is_early(self, bed: Bed) -> None:
        """Counted from the beginning of the call."""
        begun = time.monotonic()
        await bed.error("refuse", b"EVIDENCE_MISSING")
        assert time.monotonic() - begun >= 0.3


async def test_a_stopped_server_lets_calls_end_and_leaves_no_socket(bed: Bed) -> None:
    """A running call gets its answer."""
    held = asyncio.create_task(bed.call("hold", b"x"))
    await settled(lambda: bed.server.calls == 1)
    stopping = asyncio.create_task(bed.server.stop())
    await asyncio.sleep(0)
    bed.handlers.release.set()
    assert await held == b"x"
    await stopping
    assert not bed.path.exists()


async def test_a_socket_left_by_a_killed_process_is_replaced(tmp_path: Path) -> None:
    """And the new one is for its owner only."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    running = Bed(path, LIMITS)
    await running.server.start()
    assert path.stat().st_mode & 0o777 == 0o600
    await running.server.stop()


async def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    """Something else lies there: say so, touch nothing."""
    path = tmp_path / "s"
    path.write_text("precious", encoding="utf-8")
    with pytest.raises(SystemFault, match="FILE_UNUSABLE"):
        await Bed(path, LIMITS).server.start()
    assert path.read_text(encoding="utf-8") == "precious"
