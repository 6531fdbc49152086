# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sockets of a relay: read with await during the handshake, then joined with backpressure."""

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
"""The most unread bytes in this process; more stays in the kernel, so that TCP slows the sender."""


class Wire(asyncio.Protocol):
    """One stream socket.

    Until `forward` is called, `read` returns the received bytes. From then on every piece is passed to a function, and
    the other wire pauses while this wire cannot send.
    """

    def __init__(self, opened: Callable[[Wire], None] | None = None) -> None:
        """Call ``opened`` when the connection is established."""
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
        """Store the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        if self._opened is not None:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Pass on received bytes, or buffer a bounded amount."""
        if self._sink is not None:
            self._sink(data)
            return
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            self.pause()
        self._wake()

    def eof_received(self) -> bool:
        """Treat a half-closed connection as closed: neither TLS nor HTTP/2 uses half-closed connections here."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake up readers, and resolve `closed`."""
        del exc
        self._ended = True
        self._wake()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Pause the wire whose data we send, since our peer reads too slowly."""
        if self._feeder is not None:
            self._feeder.pause()

    def resume_writing(self) -> None:
        """Resume the wire whose data we send."""
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
        """Return the received bytes, at least one; raises `TransportError` CONNECTION_CLOSED at the end."""
        while not self._buffer:
            if self._ended or self._transport is None or self._transport.is_closing():
                raise TransportError(
                    "expected more data from the peer, it closed the connection",
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
        """Send ``data`` now or when the peer reads it."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def forward(self, sink: Callable[[bytes], None], *, feeder: Wire) -> None:
        """From now on pass all received bytes to ``sink``; pause ``feeder`` while we cannot send."""
        self._feeder = feeder
        self._sink = sink
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            sink(data)
        self.resume()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue to read."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, *, linger_seconds: float) -> None:
        """Send what is buffered and close; abort if the peer does not read it within ``linger_seconds``."""
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
    """A TLS wire and a plain wire, joined: the end of one closes the other."""

    def __init__(self, session: TlsSession, network: Wire, local: Wire) -> None:
        """Join ``network``, on which ``session`` has completed its handshake, with ``local``."""
        self._session = session
        self._network = network
        self._local = local
        self._reads = True
        self.error: TransportError | None = None

    def stop_reading(self) -> None:
        """Ignore what arrives from the network from now on; responses are still sent."""
        self._reads = False

    async def run(self, *, seconds: float | None, linger_seconds: float) -> None:
        """Transfer bytes until one side ends or ``seconds`` have passed, then close both."""
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
        if not self._reads:
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
