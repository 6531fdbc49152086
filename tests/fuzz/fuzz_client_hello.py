# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first bytes of a connection, looked at before any TLS."""

from __future__ import annotations

from contextlib import suppress

from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import peek
from OpenSSL import SSL

MAX_BYTES = 1 << 15


def seeds() -> list[bytes]:
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    connection.set_tlsext_host_name(b"join.example")
    connection.set_connect_state()
    with suppress(SSL.WantReadError):
        connection.do_handshake()
    hello = connection.bio_read(1 << 16)
    return [hello, hello[:60]]


def one_input(data: bytes) -> None:
    peek(data)
