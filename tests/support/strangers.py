# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that occupy connections of a service: attested connections, then HTTP/2 by hand, within its rules.

Their evidence is a test attester's, which the handshake accepts. HTTP/2 frames: RFC 9113, section 4.1; header fields
without an index: RFC 7541, section 6.2.2.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import statistics
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import (
    Attester,
    DoorkeeperIssuer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    CHALLENGE,
    ISSUE_JOIN_TICKET,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    PinnedService,
    UnknownServer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import AttestedConnection
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import (
    TlsSession,
    Wire,
    client_context,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection

    from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import Issuer, ServerCheck

SOURCES = 64
STREAMS = 16

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_HEAD_BYTES = 9
_PAUSE_SECONDS = 0.05
_DRIP_SECONDS = 0.5
_SETTLE_SECONDS = 5.0


class Kind(StrEnum):
    """Their behavior after the handshake."""

    SILENT_STREAMS = "silent streams"
    SILENT_SEATS = "silent seats"
    REFUSED_CALLS = "refused calls"
    DRIPPING = "dripping"


def preface() -> bytes:
    """Return the start of an HTTP/2 client: the preface and empty settings."""
    return _PREFACE + frame(_SETTINGS, 0, 0, b"")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def begun_call(path: str, stream: int) -> bytes:
    """Return the headers of a gRPC call, whose message may never follow."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "attested",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(b"\x00" + _word(name) + _word(value) for name, value in fields.items())
    return frame(_HEADERS, _END_HEADERS, stream, block)


def whole_call(path: str, stream: int, message: bytes) -> bytes:
    """Return a gRPC call with its message."""
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return begun_call(path, stream) + frame(_DATA, _END_STREAM, stream, body)


def _word(text: str) -> bytes:
    data = text.encode("ascii")
    return bytes((len(data),)) + data  # below 127 bytes the length is one byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A service with the requirements of its listener: with ``pins``, clients show evidence."""

    host: str
    port: int
    pins: JoinCaPins | None = None
    cluster_id: bytes = b""
    issuer: Issuer | None = None

    def check(self) -> ServerCheck:
        """Return the verifier of its certificate."""
        return UnknownServer() if self.pins is None else PinnedService(self.pins, self.cluster_id, SystemClock())


class Stranger:
    """One attested connection from ``source``, with HTTP/2 bytes by hand."""

    def __init__(self, network: Wire, session: TlsSession, words: bytes) -> None:
        """Created by `enter`; ``words`` were received before, and are answered after our preface."""
        self._network = network
        self._session = session
        self._inbox = words

    @classmethod
    async def enter(cls, target: Target, source: str) -> Stranger:
        """Run the handshake and wait for data of the service; raises `TransportError` without any."""
        loop = asyncio.get_running_loop()
        _unused, network = await loop.create_connection(Wire, target.host, target.port, local_addr=(source, 0))
        issuer = target.issuer or (soft_issuer() if target.pins is not None else None)
        check = target.check()
        connection = AttestedConnection(check, issuer, SystemClock())
        session = TlsSession(client_context(connection._decide), is_server=False, server_name=check.server_name)
        try:
            await connection._shake_hands(network, session)
            words = await connection._first_bytes(network, session)
        except BaseException:
            network.abort()
            raise
        return cls(network, session, words)

    def say(self, data: bytes) -> None:
        """Send ``data`` inside the connection."""
        self._network.write(self._session.encrypt(data))

    async def ended(self, *, answers: bool = True) -> None:
        """Read until the service closes, and answer settings and pings like an HTTP/2 client."""
        with suppress(AttestedError):
            words: bytes | None = b""
            while words is not None:
                if answers:
                    self._take(words)
                self._session.feed(await self._network.read())
                words = self._session.decrypt()

    def _take(self, words: bytes) -> None:
        self._inbox += words
        while len(self._inbox) >= _HEAD_BYTES:
            size, kind, flags = int.from_bytes(self._inbox[:3], "big"), self._inbox[3], self._inbox[4]
            if len(self._inbox) < _HEAD_BYTES + size:
                return
            payload = self._inbox[_HEAD_BYTES : _HEAD_BYTES + size]
            self._inbox = self._inbox[_HEAD_BYTES + size :]
            if kind in {_SETTINGS, _PING} and not flags & _ACK:
                self.say(frame(kind, _ACK, 0, payload if kind == _PING else b""))

    def leave(self) -> None:
        """Close the connection."""
        self._network.abort()


def soft_issuer() -> Issuer:
    """Return the issuer of handshake evidence of a new, unenrolled test attester."""
    tpm = SoftTpm()
    return DoorkeeperIssuer(Attester(tpm=tpm, ek=tpm.ek, ak=tpm.ak))


async def hold_one(target: Target, source: str, kind: Kind, *, path: str = CHALLENGE) -> None:
    """Connect once and do ``kind`` until the service closes."""
    stranger = await Stranger.enter(target, source)
    try:
        if kind is Kind.DRIPPING:
            await _drip(stranger)
        elif kind is Kind.REFUSED_CALLS:
            await _be_refused(stranger)
        else:
            said = preface()
            if kind is Kind.SILENT_STREAMS:
                said += b"".join(begun_call(path, 1 + 2 * number) for number in range(STREAMS))
            stranger.say(said)
            await stranger.ended()
    finally:
        stranger.leave()


async def _drip(stranger: Stranger) -> None:
    ending = asyncio.create_task(stranger.ended(answers=False))
    try:
        for byte in preface() + begun_call(CHALLENGE, 1):
            stranger.say(bytes((byte,)))
            await asyncio.wait((ending,), timeout=_DRIP_SECONDS)
            if ending.done():
                return
        await ending
    finally:
        ending.cancel()


async def _be_refused(stranger: Stranger) -> None:
    """Call continuously: two calls at a time, one invalid and one without a bound quote."""
    ending = asyncio.create_task(stranger.ended())
    stranger.say(preface())
    stream = 1
    try:
        while not ending.done():
            stranger.say(whole_call(CHALLENGE, stream, b"junk") + whole_call(ISSUE_JOIN_TICKET, stream + 2, b"junk"))
            stream += 4
            await asyncio.wait((ending,), timeout=_PAUSE_SECONDS)
    finally:
        ending.cancel()


async def besiege(target: Target, kind: Kind, *, sources: tuple[str, ...], each: int) -> None:
    """Do ``kind`` from all ``sources``, ``each`` times at once, again after a close, until cancelled."""

    async def again(source: str) -> None:
        while True:
            with suppress(AttestedError, OSError):
                await hold_one(target, source, kind)
            await asyncio.sleep(_PAUSE_SECONDS)

    async with asyncio.TaskGroup() as group:
        for source in sources:
            for _unused in range(each):
                group.create_task(again(source))


def loopback_sources(count: int = SOURCES) -> tuple[str, ...]:
    """Return addresses of this machine that count as separate sources."""
    return tuple(f"127.0.1.{number}" for number in range(1, count + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Siege:
    """The options of a process of strangers: target, join CA (PEM) and cluster, kind, sources."""

    host: str
    port: int
    join_ca: bytes
    cluster_id: bytes
    kind: Kind
    sources: tuple[str, ...]
    each: int = 4

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Run it in a separate process with low priority, and continue when it is settled."""
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_lay, args=(theirs, self), daemon=True)
        process.start()
        theirs.close()
        ours.recv()
        try:
            yield
        finally:
            if process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
            process.join()


def _lay(pipe: Connection, siege: Siege) -> None:
    os.nice(19)
    target = Target(
        host=siege.host, port=siege.port, pins=JoinCaPins.from_pem(siege.join_ca), cluster_id=siege.cluster_id
    )

    async def lay() -> None:
        going = asyncio.create_task(besiege(target, siege.kind, sources=siege.sources, each=siege.each))
        await asyncio.wait((going,), timeout=_SETTLE_SECONDS)
        pipe.send("ready")
        await going

    asyncio.run(lay())


def p95(seconds: Iterable[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return statistics.quantiles(seconds, n=20, method="inclusive")[18] * 1000
