# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interfaces that the transport needs: an issuer and a validator of evidence, and an observer of events."""

from __future__ import annotations

from typing import Protocol

EVIDENCE_OID = "2.25.256063378068572461403842605243355101751"
"""The X.509 extension that carries `attested.v1.Evidence`: a fixed UUID as an integer (ITU-T X.667)."""

NONCE_BYTES = 32
"""Length of every nonce, in the server name and in the list of acceptable CAs."""

MAX_EVIDENCE_BYTES = 60_000
"""More does not fit into the 64 KiB handshake message of older TLS stacks; event logs are sent in requests."""

ALPN_H2 = b"h2"


class Issuer(Protocol):
    """Issues evidence; called in a worker thread, so it may wait for a TPM."""

    @property
    def oid(self) -> str:
        """Dotted OID of the extension that carries this evidence."""

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return evidence over ``user_data`` (SHA-256 of our public key) and the peer's ``nonce``."""


class Validator(Protocol):
    """Verifies evidence; called in a few worker threads, or on the event loop (`Limits.judges_inline`)."""

    @property
    def oid(self) -> str:
        """Dotted OID of the extension that carries this evidence."""

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return the name of the key that signed ``document``, empty if there is none.

        Raises `Refusal` unless ``document`` is good evidence over ``user_data`` and our own ``nonce``.
        """


class Observer(Protocol):
    """Receives the events of connections; `core.logs.Log` implements it."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Record the event ``name``; must neither block nor raise."""


class NoObserver:
    """An observer that ignores all events."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Ignore the event."""
