# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at a ClientHello: real ones are read, anything else ends in one error, never in another."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import (
    MAX_HELLO_BYTES,
    ClientHello,
    peek,
)
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL

NAME = b"q83v/+AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


def real_hello(server_name: bytes | None = NAME, protocols: tuple[bytes, ...] = (b"h2",)) -> bytes:
    """Return what OpenSSL sends first."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    if protocols:
        context.set_alpn_protos(list(protocols))
    connection = SSL.Connection(context, None)
    if server_name is not None:
        connection.set_tlsext_host_name(server_name)
    connection.set_connect_state()
    with pytest.raises(SSL.WantReadError):
        connection.do_handshake()
    return connection.bio_read(1 << 16)


def resegmented(hello: bytes, size: int) -> bytes:
    """Return the same handshake message in TLS records of ``size`` bytes."""
    body = hello[5:]
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(chunk).to_bytes(2, "big") + chunk for chunk in chunks)


HELLO = real_hello()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(HELLO, ClientHello(NAME, (b"h2",)), id="a nonce as server name comes out byte for byte"),
        pytest.param(real_hello(None), ClientHello(None, (b"h2",)), id="no server name is None"),
        pytest.param(
            real_hello(NAME, (b"http/1.1", b"h2")), ClientHello(NAME, (b"http/1.1", b"h2")), id="protocols keep order"
        ),
        pytest.param(real_hello(protocols=()), ClientHello(NAME, ()), id="no protocols is an empty tuple"),
        pytest.param(resegmented(HELLO, 50), ClientHello(NAME, (b"h2",)), id="records of 50 bytes are put together"),
        pytest.param(HELLO + b"\x17\x03\x03", None, id="a foreign record behind it is refused"),
    ],
)
def test_real_hellos_are_read(data: bytes, expected: ClientHello | None) -> None:
    """What OpenSSL sends is understood; and a hello with other records behind it is none."""
    if expected is None:
        with pytest.raises(TransportError, match="CLIENT_HELLO_MALFORMED"):
            peek(data)
    else:
        assert expected == peek(data)


@pytest.mark.parametrize("size", range(0, len(HELLO), 97))
def test_an_incomplete_hello_asks_for_more(size: int) -> None:
    """No prefix of a hello is an answer or an error."""
    assert peek(HELLO[:size]) is None


def patched(at: int, value: int) -> bytes:
    """Return the hello with one byte changed."""
    return HELLO[:at] + bytes([value]) + HELLO[at + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\x80\x2e\x01\x00\x02", id="SSL 2"),
        pytest.param(patched(0, 23), id="application data first"),
        pytest.param(patched(1, 2), id="another major version"),
        pytest.param(patched(5, 2), id="a ServerHello"),
        pytest.param(b"\x16\x03\x01\x00\x00", id="an empty record"),
        pytest.param(b"\x16\x03\x01\x40\x01", id="a record over 16 KiB"),
        pytest.param(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff", id="a message announced with 16 MiB"),
        pytest.param(b"\x16\x03\x01\x00\x01\x01" * 4000, id="a message that never ends, in one-byte records"),
        pytest.param(
            HELLO[:5] + HELLO[5:8] + bytes([HELLO[8] + 1]) + HELLO[9:] + b"\x16\x03\x01\x00\x01x", id="a tail"
        ),
    ],
)
def test_what_is_no_hello_is_refused(data: bytes) -> None:
    """Everything else has one reason code."""
    with pytest.raises(TransportError) as caught:
        peek(data)
    assert caught.value.reason is Reason.CLIENT_HELLO_MALFORMED


def outcome(data: bytes) -> ClientHello | Reason | None:
    """Return the hello, the wish for more (None) or the reason; any other error is a flaw."""
    try:
        return peek(data)
    except TransportError as error:
        return error.reason


@given(at=st.integers(0, len(HELLO) - 1), value=st.integers(0, 255), cut=st.integers(0, len(HELLO)))
def test_no_mutation_raises_anything_else(at: int, value: int, cut: int) -> None:
    """A changed byte and a cut give an answer, a wish for more, or the one error."""
    found = outcome(patched(at, value)[:cut])
    assert found in (None, Reason.CLIENT_HELLO_MALFORMED) or isinstance(found, ClientHello)


@given(st.binary(max_size=600))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """The same for bytes that never were a hello, alone and inside a well-formed frame."""
    message = b"\x01" + len(data).to_bytes(3, "big") + data
    framed = b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
    assert outcome(data) in (None, Reason.CLIENT_HELLO_MALFORMED)
    assert outcome(framed) == Reason.CLIENT_HELLO_MALFORMED or isinstance(outcome(framed), ClientHello)


def test_the_limit_holds_for_a_well_formed_giant() -> None:
    """A hello that is correct but too long is refused from its header alone."""
    header = b"\x01" + (MAX_HELLO_BYTES + 1).to_bytes(3, "big")
    with pytest.raises(TransportError, match="CLIENT_HELLO_MALFORMED"):
        peek(b"\x16\x03\x01\x00\x04" + header)
