# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sockets of a relay: read with await while a handshake runs, joined with backpressure once it is over."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from ..errors import TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import TlsSession

_PEER_CREDENTIALS = struct.Struct("3i")
_BUFFER_BYTES = 1 << 16
"""What may wait here unread; more stays in the kernel, so that its window closes for the sender."""


class Wire(asyncio.Protocol):
    """One stream socket.

    First `read` gets what arrives; from `forward` on each piece goes to a function at once, and the other wire is
    told to pause while this one cannot send.
    """

    def __init__(self, opened: Callable[[Wire], None] | None = None) -> None:
        """Call ``opened`` as soon as there is a connection."""
        self._opened = opened
        self._buffer = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Callable[[bytes], None] | None = None
        self._feeder: Wire | None = None
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        if self._opened is not None:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand on what arrives, or keep a bounded amount of it."""
        if self._sink is not None:
            self._sink(data)
            return
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            self.pause()
        self._wake()

    def eof_received(self) -> bool:
        """Treat a half-closed peer as gone: neither TLS nor HTTP/2 has half-closed connections here."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Let readers and whoever waits for the end know."""
        del exc
        self._ended = True
        self._wake()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Stop the source of what we send: our peer reads too slowly."""
        if self._feeder is not None:
            self._feeder.pause()

    def resume_writing(self) -> None:
        """Let the source go on."""
        if self._feeder is not None:
            self._feeder.resume()

    # ---- for the relay

    @property
    def remote(self) -> tuple[str, int]:
        """Address and port of the peer of a TCP connection."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("unknown", 0)

    @property
    def peer_process(self) -> int:
        """Process id of the peer of a unix connection (SO_PEERCRED)."""
        end = self._transport.get_extra_info("socket") if self._transport else None
        if end is None:
            return -1
        credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        process: int = _PEER_CREDENTIALS.unpack(credentials)[0]
        return process

    async def read(self) -> bytes:
        """Return what has arrived, at least one byte; raises `TransportError` CONNECTION_CLOSED at the end."""
        while not self._buffer:
            if self._ended or self._transport is None or self._transport.is_closing():
                raise TransportError(
                    "expected more from the other side, it closed the connection",
                    reason=Reason.CONNECTION_CLOSED,
                    retryable=True,
                )
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = bytes(self._buffer)
        self._buffer.clear()
        self.resume()
        return data

    def write(self, data: bytes) -> None:
        """Send ``data``, now or when the peer takes it."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def forward(self, sink: Callable[[bytes], None], *, feeder: Wire) -> None:
        """From now on hand everything to ``sink``; ``feeder`` pauses while we cannot send."""
        self._feeder = feeder
        self._sink = sink
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            sink(data)
        self.resume()

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, *, linger_seconds: float) -> None:
        """Send what is waiting and close; a peer that does not take it within ``linger_seconds`` is cut off."""
        if self._transport is None or self._ended:
            return
        self._transport.close()
        cut = asyncio.get_running_loop().call_later(linger_seconds, self._transport.abort)
        self.closed.add_done_callback(lambda _unused: cut.cancel())

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Splice:
    """A TLS wire and a plain wire joined: what ends on one side ends on the other."""

    def __init__(self, session: TlsSession, network: Wire, local: Wire) -> None:
        """Join ``network``, on which ``session`` has completed its handshake, with ``local``."""
        self._session = session
        self._network = network
        self._local = local
        self._hears = True
        self.error: TransportError | None = None

    def hear_no_more(self) -> None:
        """Carry what is still to be answered, and nothing more of what arrives from the network."""
        self._hears = False

    async def run(self, *, seconds: float | None, linger_seconds: float) -> None:
        """Carry bytes until one side ends, or ``seconds`` have passed; then close both."""
        self._network.forward(self._inbound, feeder=self._local)
        self._inbound(b"")
        self._local.forward(self._outbound, feeder=self._network)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait((self._network.closed, self._local.closed), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self.error = TransportError(
                f"expected a connection to end within {seconds:g} s, it did not", reason=Reason.CONNECTION_TIMEOUT
            )
        finally:
            self._network.write(self._session.close())
            self._network.close(linger_seconds=linger_seconds)
            self._local.close(linger_seconds=linger_seconds)

    def _inbound(self, ciphertext: bytes) -> None:
        if not self._hears:
            return
        try:
            if ciphertext:
                self._session.feed(ciphertext)
            plaintext = self._session.decrypt()
        except TransportError as error:
            self.error = error
            plaintext = None
        self._network.write(self._session.outgoing())
        if plaintext:
            self._local.write(plaintext)
        elif plaintext is None:
            self._network.close(linger_seconds=0)

    def _outbound(self, plaintext: bytes) -> None:
        try:
            self._network.write(self._session.encrypt(plaintext))
        except TransportError as error:
            self.error = error
            self._network.abort()
