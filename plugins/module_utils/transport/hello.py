# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse a TLS ClientHello before the TLS library gets it (RFC 8446, sections 4.1.2 and 5.1).

A pure function over the bytes so far. The server name may carry a nonce, and evidence over it must be issued before the
handshake begins. So the first flight is read here, bounded, and then passed to OpenSSL unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import TransportError
from ..reasons import Reason

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
