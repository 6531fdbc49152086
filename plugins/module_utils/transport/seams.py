# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the transport needs from others: who makes evidence, who judges it, who hears what happened."""

from __future__ import annotations

from typing import Protocol

EVIDENCE_OID = "2.25.256063378068572461403842605243355101751"
"""X.509 extension that carries `attested.v1.Evidence`: a UUID fixed once, as an integer (ITU-T X.667)."""

NONCE_BYTES = 32
"""Length of every nonce, in the server name as well as in the list of acceptable CAs."""

MAX_EVIDENCE_BYTES = 60_000
"""More does not fit in the 64 KiB handshake message that older TLS stacks accept; event logs travel elsewhere."""

ALPN_H2 = b"h2"


class Issuer(Protocol):
    """Makes evidence; called in a worker thread, so it may take as long as a TPM takes."""

    @property
    def oid(self) -> str:
        """Dotted OID of the extension that carries this evidence."""

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return evidence over ``user_data`` (SHA-256 of our public key) and the other side's ``nonce``."""


class Validator(Protocol):
    """Judges evidence; called in a worker thread, a few at a time."""

    @property
    def oid(self) -> str:
        """Dotted OID of the extension that carries this evidence."""

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return the name of the key that made ``document``, empty where there is none.

        Raises `Refusal` unless it is good evidence over ``user_data`` and our own ``nonce``.
        """


class Observer(Protocol):
    """Hears what happened to connections; `serving.Log` is one."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Take note of the event ``name``; must neither block nor raise."""


class NoObserver:
    """Hears nothing."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Take no note."""
