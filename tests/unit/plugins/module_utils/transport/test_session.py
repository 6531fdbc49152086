# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TLS in memory: both ends of our own contexts, and what breaks them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    make_certificate,
    new_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import (
    ServerCredentials,
    TlsSession,
    client_context,
    server_context,
)
from ansible_collections.attested.kubernetes.tests.support.atls import connected_sessions
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

KEY = new_key()
LEAF = make_certificate(KEY, oid=EVIDENCE_OID, evidence=b"x", now=datetime.now(UTC))
PEM = serialization.Encoding.PEM


def sessions(*, accept: bool = True) -> tuple[TlsSession, TlsSession]:
    """Return a client and a server that have not talked yet."""
    client = TlsSession(client_context(lambda *_rest: accept), is_server=False, server_name=b"a+b/c=")
    server = TlsSession(server_context(ServerCredentials((LEAF,), KEY), client_authority=None), is_server=True)
    return client, server


def test_both_ends_agree() -> None:
    """On the exporter, on the server's certificate and name; and another connection has another exporter."""
    server, client = connected_sessions()
    assert client.exporter() == server.exporter()
    assert len(client.exporter()) == 32
    assert client.exporter() != connected_sessions()[1].exporter()
    assert len(client.peer_chain()) == 1
    assert server.server_name() == b"a+b/c="
    assert server.peer_chain() == ()


def test_bytes_cross_both_ways() -> None:
    """Also more than one record of them, and a close is told apart from silence."""
    server, client = connected_sessions()
    words = bytes(range(256)) * 300
    server.feed(client.encrypt(words))
    assert server.decrypt() == words
    client.feed(server.encrypt(b"back"))
    assert client.decrypt() == b"back"
    assert client.decrypt() == b""
    client.feed(server.close())
    assert client.decrypt() is None


def test_a_changed_record_breaks_the_connection() -> None:
    """One bit is enough."""
    server, client = connected_sessions()
    record = bytearray(client.encrypt(b"words"))
    record[-1] ^= 1
    server.feed(bytes(record))
    with pytest.raises(TransportError) as caught:
        server.decrypt()
    assert caught.value.reason is Reason.TLS_BROKEN


def test_a_server_that_is_not_accepted_gets_an_alert() -> None:
    """The client's refusal ends the handshake on both sides."""
    client, server = sessions(accept=False)
    client.handshake()
    server.feed(client.outgoing())
    server.handshake()
    client.feed(server.outgoing())
    with pytest.raises(TransportError, match="TLS_HANDSHAKE_FAILED"):
        client.handshake()
    server.feed(client.outgoing())
    with pytest.raises(TransportError) as caught:
        server.handshake()
    assert "alert" in caught.value.message


def private_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    """Return a key in PEM."""
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def test_credentials_come_from_pem() -> None:
    """Chain and key as the key service gives them; the key is in no text about them."""
    credentials = ServerCredentials.from_pem(LEAF.public_bytes(PEM), private_pem(KEY))
    assert (credentials.chain, credentials.key.private_numbers()) == ((LEAF,), KEY.private_numbers())
    assert "key" not in repr(credentials).replace("PublicKey", "")


@pytest.mark.parametrize(
    ("chain", "key"),
    [
        pytest.param(LEAF.public_bytes(PEM), private_pem(new_key()), id="another key"),
        pytest.param(LEAF.public_bytes(PEM), private_pem(ed25519.Ed25519PrivateKey.generate()), id="another kind"),
        pytest.param(LEAF.public_bytes(PEM), b"", id="no key"),
        pytest.param(b"", private_pem(KEY), id="no certificate"),
    ],
)
def test_credentials_must_fit(chain: bytes, key: bytes) -> None:
    """Found when they are loaded, not at the first handshake."""
    with pytest.raises(TransportError) as caught:
        ServerCredentials.from_pem(chain, key)
    assert caught.value.reason is Reason.SERVER_CREDENTIALS_UNUSABLE
