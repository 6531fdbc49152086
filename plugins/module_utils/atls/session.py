# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One TLS connection in memory: bytes in, bytes out, no socket (pyOpenSSL over memory BIOs).

Never used by two threads at once. After a failed step the alert is still in `outgoing`: send it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._deps.tls import SSL
from ..errors import TransportError
from ..reasons import Reason
from .seams import ALPN_H2

if TYPE_CHECKING:
    from .._deps.crypto import x509

_CHUNK = 1 << 16
_EXPORTER_LABEL = b"EXPORTER-Channel-Binding"
_EXPORTER_BYTES = 32


class TlsSession:
    """A TLS connection without a socket."""

    def __init__(self, context: SSL.Context, *, is_server: bool, server_name: bytes | None = None) -> None:
        """Begin as server or client; ``server_name`` goes out as SNI, at most 255 bytes."""
        self._is_server = is_server
        self._connection = SSL.Connection(context, None)
        if server_name is not None:
            self._connection.set_tlsext_host_name(server_name)
        if is_server:
            self._connection.set_accept_state()
        else:
            self._connection.set_connect_state()

    def feed(self, ciphertext: bytes) -> None:
        """Take bytes that came from the network."""
        self._connection.bio_write(ciphertext)

    def outgoing(self) -> bytes:
        """Return what must go to the network now."""
        pieces = []
        while True:
            try:
                pieces.append(self._connection.bio_read(_CHUNK))
            except SSL.WantReadError:
                return b"".join(pieces)

    def handshake(self) -> bool:
        """Go on with the handshake and return whether it is complete; raises TLS_HANDSHAKE_FAILED."""
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
        """Return what the peer has sent so far, or None once it has closed; raises TLS_BROKEN."""
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
        """Return the certificates that the peer has shown, leaf first."""
        chain = tuple(self._connection.get_peer_cert_chain(as_cryptography=True) or ())
        leaf = self._connection.get_peer_certificate(as_cryptography=True)
        if leaf is None or not self._is_server:
            return chain
        return (leaf, *chain)  # on a server OpenSSL keeps the leaf out of the chain

    def server_name(self) -> bytes | None:
        """Return the SNI as OpenSSL has read it."""
        return self._connection.get_servername()

    def exporter(self) -> bytes:
        """Return the channel binding: RFC 9266 label, empty context, 32 bytes."""
        return self._connection.export_keying_material(_EXPORTER_LABEL, _EXPORTER_BYTES)


def describe(error: SSL.Error) -> str:
    """Return what OpenSSL says of an error, in one line."""
    queue = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return ", ".join(str(entry[-1]) for entry in queue) or str(error) or type(error).__name__
