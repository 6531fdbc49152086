# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One TLS connection in memory: bytes in, bytes out, no socket (pyOpenSSL over memory BIOs).

Two threads must not use it at once. After a failed step `outgoing` still has the alert, which must be sent.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, serialization, unreadable, x509
from .._deps.tls import SSL
from ..errors import TransportError
from ..reasons import Reason
from .certificate import ALPN_H2

if TYPE_CHECKING:
    from collections.abc import Callable


# Parse a TLS ClientHello before the TLS library gets it (RFC 8446, sections 4.1.2 and 5.1).
#
# A pure function over the bytes so far. The server name may carry a nonce, and evidence over it must be issued before
# the
# handshake begins. So the first flight is read here, bounded, and then passed to OpenSSL unchanged.

MAX_HELLO_BYTES = 16_384
"""A ClientHello with a post-quantum key share has about 1.8 KB, far less than this limit."""

_RECORD_HEADER = 5
_HANDSHAKE_RECORD = 22
_CLIENT_HELLO = 1
_MAX_RECORD = 1 << 14
_HOST_NAME = 0
_SERVER_NAME = 0
_APPLICATION_PROTOCOLS = 16
_RANDOM_AND_VERSION = 34


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The peer's first message: ``server_name`` as sent (it may be no host name) and its ALPN ``protocols``."""

    server_name: bytes | None
    protocols: tuple[bytes, ...]


def peek(data: bytes) -> ClientHello | None:
    """Return the ClientHello at the beginning of ``data``, or None if it is incomplete.

    Raises `TransportError` CLIENT_HELLO_MALFORMED as soon as the bytes cannot become a ClientHello of at most
    `MAX_HELLO_BYTES`.
    """
    message = _handshake_bytes(data)
    if len(message) < 4:  # noqa: PLR2004 - type and 24-bit length
        _check_progress(data)
        return None
    length = int.from_bytes(message[1:4], "big")
    if message[0] != _CLIENT_HELLO or length > MAX_HELLO_BYTES:
        raise _malformed(f"a handshake message of type {message[0]} and {length} bytes")
    if len(message) < 4 + length:
        _check_progress(data)
        return None
    return _parse(_Reader(message[4 : 4 + length]))


def _check_progress(data: bytes) -> None:
    if len(data) > MAX_HELLO_BYTES:
        raise _malformed(f"no complete message in {len(data)} bytes")


def _malformed(got: str) -> TransportError:
    return TransportError(
        f"expected a TLS ClientHello of at most {MAX_HELLO_BYTES} bytes, got {got}",
        reason=Reason.CLIENT_HELLO_MALFORMED,
    )


def _handshake_bytes(data: bytes) -> bytes:
    """Return the payload of the records that are complete or begun."""
    message = bytearray()
    offset = 0
    while offset < len(data):
        header = data[offset : offset + _RECORD_HEADER]
        if header[0] != _HANDSHAKE_RECORD:
            raise _malformed(f"a record of type {header[0]}")
        if len(header) < _RECORD_HEADER:
            break
        length = int.from_bytes(header[3:5], "big")
        if header[1] != 3 or not 0 < length <= _MAX_RECORD:  # noqa: PLR2004 - the major version of every TLS
            raise _malformed(f"a record of version {header[1]}.{header[2]} and {length} bytes")
        message += data[offset + _RECORD_HEADER : offset + _RECORD_HEADER + length]
        offset += _RECORD_HEADER + length
    return bytes(message)


class _Reader:
    """Reads length-prefixed pieces in order; never reads past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise _malformed(f"a piece of {len(piece)} bytes where {count} were announced")
        self._at += count
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def piece(self, prefix: int) -> bytes:
        return self.take(self.number(prefix))

    @property
    def more(self) -> bool:
        return self._at < len(self._data)


def _parse(hello: _Reader) -> ClientHello:
    hello.take(_RANDOM_AND_VERSION)
    hello.piece(1)  # legacy session id
    hello.piece(2)  # cipher suites
    hello.piece(1)  # legacy compression methods
    extensions = _extensions(_Reader(hello.piece(2))) if hello.more else {}
    if hello.more:
        raise _malformed("bytes after the extensions")
    return ClientHello(
        server_name=_server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else None,
        protocols=_protocols(extensions.get(_APPLICATION_PROTOCOLS)),
    )


def _extensions(block: _Reader) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while block.more:
        kind = block.number(2)
        if kind in found:
            raise _malformed(f"extension {kind} twice")
        found[kind] = block.piece(2)
    return found


def _server_name(extension: bytes) -> bytes:
    outer = _Reader(extension)
    names = _Reader(outer.piece(2))
    kind = names.number(1)
    name = names.piece(2)
    if kind != _HOST_NAME or not name or names.more or outer.more:
        raise _malformed("a list of server names that is not one host name")
    return name


def _protocols(extension: bytes | None) -> tuple[bytes, ...]:
    if extension is None:
        return ()
    outer = _Reader(extension)
    names = _Reader(outer.piece(2))
    found = []
    while names.more:
        found.append(names.piece(1))
    if outer.more or not all(found):
        raise _malformed("a broken list of protocols")
    return tuple(found)


_CHUNK = 1 << 16
_EXPORTER_LABEL = b"EXPORTER-Channel-Binding"
_EXPORTER_BYTES = 32


class TlsSession:
    """A TLS connection without a socket."""

    def __init__(self, context: SSL.Context, *, is_server: bool, server_name: bytes | None = None) -> None:
        """Start as server or client; ``server_name`` is sent as SNI, at most 255 bytes."""
        self._is_server = is_server
        self._connection = SSL.Connection(context, None)
        if server_name is not None:
            self._connection.set_tlsext_host_name(server_name)
        if is_server:
            self._connection.set_accept_state()
        else:
            self._connection.set_connect_state()

    def feed(self, ciphertext: bytes) -> None:
        """Process bytes from the network."""
        self._connection.bio_write(ciphertext)

    def outgoing(self) -> bytes:
        """Return the bytes to send to the network now."""
        pieces = []
        while True:
            try:
                pieces.append(self._connection.bio_read(_CHUNK))
            except SSL.WantReadError:
                return b"".join(pieces)

    def handshake(self) -> bool:
        """Continue the handshake and return whether it is complete; raises TLS_HANDSHAKE_FAILED."""
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise TransportError(
                f"expected a TLS 1.3 handshake, it ended with: {describe(error)}", reason=Reason.TLS_HANDSHAKE_FAILED
            ) from error
        if self._connection.get_alpn_proto_negotiated() != ALPN_H2:
            raise TransportError(
                "expected a peer that speaks HTTP/2 (ALPN h2), it offered another protocol or none",
                reason=Reason.TLS_HANDSHAKE_FAILED,
            )
        return True

    def decrypt(self) -> bytes | None:
        """Return the bytes that the peer has sent so far, or None after its end; raises TLS_BROKEN."""
        pieces = []
        while True:
            try:
                pieces.append(self._connection.recv(_CHUNK))
            except SSL.WantReadError:
                return b"".join(pieces)
            except SSL.ZeroReturnError:
                return b"".join(pieces) or None
            except SSL.Error as error:
                raise TransportError(
                    f"expected TLS records, the connection ended with: {describe(error)}", reason=Reason.TLS_BROKEN
                ) from error

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the records that carry ``plaintext``; raises TLS_BROKEN."""
        try:
            self._connection.sendall(plaintext)
        except SSL.Error as error:
            raise TransportError(
                f"expected to send TLS records, the connection ended with: {describe(error)}",
                reason=Reason.TLS_BROKEN,
            ) from error
        return self.outgoing()

    def close(self) -> bytes:
        """Return the closing alert."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            return b""
        return self.outgoing()

    def peer_chain(self) -> tuple[x509.Certificate, ...]:
        """Return the certificates of the peer, leaf first."""
        chain = tuple(self._connection.get_peer_cert_chain(as_cryptography=True) or ())
        leaf = self._connection.get_peer_certificate(as_cryptography=True)
        if leaf is None or not self._is_server:
            return chain
        return (leaf, *chain)  # on a server OpenSSL keeps the leaf out of the chain

    def server_name(self) -> bytes | None:
        """Return the SNI as OpenSSL read it."""
        return self._connection.get_servername()

    def exporter(self) -> bytes:
        """Return the channel binding: RFC 9266 label, empty context, 32 bytes."""
        return self._connection.export_keying_material(_EXPORTER_LABEL, _EXPORTER_BYTES)


def describe(error: SSL.Error) -> str:
    """Return OpenSSL's texts of an error on one line."""
    queue = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return ", ".join(str(entry[-1]) for entry in queue) or str(error) or type(error).__name__


# TLS contexts: TLS 1.3 only, one for each connection.
#
# With a context for each connection no session, ticket, certificate or callback is shared. Tickets and session cache
# are off too, so no resumption can skip attestation.


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """The certificate chain of a server, leaf first, and the leaf's private key."""

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def from_pem(cls, chain: bytes, key: bytes) -> ServerCredentials:
        """Return chain and PKCS 8 key from PEM; raises `TransportError` SERVER_CREDENTIALS_UNUSABLE."""
        try:
            certificates = tuple(x509.load_pem_x509_certificates(chain))
            private = serialization.load_pem_private_key(key, password=None)
        except unreadable() as error:
            raise _unusable("bytes that are no PEM") from error
        return cls.checked(certificates, private)

    @classmethod
    def checked(cls, chain: tuple[x509.Certificate, ...], key: object) -> ServerCredentials:
        """Return the credentials; raises SERVER_CREDENTIALS_UNUSABLE unless the leaf of ``chain`` is over ``key``."""
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _unusable("another kind of key")
        if not chain or chain[0].public_key() != key.public_key():
            raise _unusable("a certificate over another key")
        return cls(chain, key)


def server_context(credentials: ServerCredentials, *, client_authority: x509.Certificate | None) -> SSL.Context:
    """Return the context of one accepted connection.

    With ``client_authority`` (whose name is our nonce) a client certificate is required. The callback accepts every
    certificate: it is verified right after the handshake, before any byte is forwarded, so that all rejected peers get
    the same response.
    """
    context = _hardened(SSL.TLS_SERVER_METHOD)
    context.set_session_id(secrets.token_bytes(32))
    context.use_privatekey(credentials.key)
    context.use_certificate(credentials.chain[0])
    for certificate in credentials.chain[1:]:
        context.add_extra_chain_cert(certificate)
    context.set_alpn_select_callback(_select_h2)
    if client_authority is not None:
        context.add_client_ca(client_authority)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _accept_any)
    return context


def client_context(decide: Callable[[SSL.Connection, x509.Certificate], bool]) -> SSL.Context:
    """Return the context of one connection to a server.

    ``decide`` gets the leaf during the handshake; it must not raise. It may be called more than once for the same leaf,
    because OpenSSL has no trust anchor here and reports several findings.
    """

    def callback(connection: SSL.Connection, certificate: object, _error: int, depth: int, _ok: int) -> bool:
        return depth > 0 or decide(connection, certificate.to_cryptography())  # type: ignore[attr-defined]

    context = _hardened(SSL.TLS_CLIENT_METHOD)
    context.set_alpn_protos([ALPN_H2])
    context.set_verify(SSL.VERIFY_PEER, callback)
    return context


def _hardened(method: int) -> SSL.Context:
    context = SSL.Context(method)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_max_proto_version(SSL.TLS1_3_VERSION)
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def _accept_any(*_finding: object) -> bool:
    return True


def _select_h2(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    return ALPN_H2 if ALPN_H2 in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def _unusable(got: str) -> TransportError:
    return TransportError(
        f"expected a certificate chain and its P-256 key, got {got}", reason=Reason.SERVER_CREDENTIALS_UNUSABLE
    )


# The sockets of a relay: read with await during the handshake, then joined with backpressure.

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
