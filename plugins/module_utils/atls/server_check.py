# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a client judges the server, in the handshake, before it makes any evidence of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .certificate import open_certificate, server_spki_sha256
from .nonce import encode_nonce
from .pins import JoinCaPins, verify_service_certificate

if TYPE_CHECKING:
    from .._deps.crypto import x509
    from ..system import Clock
    from .seams import Validator


class ServerCheck(Protocol):
    """Decides whether a server is the one that was meant."""

    @property
    def server_name(self) -> bytes | None:
        """What goes out as SNI."""

    def check(self, leaf: x509.Certificate) -> None:
        """Raise an `AttestedError` unless ``leaf`` is good; possession of its key is proven by the handshake."""


class PinnedService:
    """The server shows a certificate of the pinned join CA, for this cluster."""

    def __init__(self, pins: JoinCaPins, cluster_id: bytes, clock: Clock) -> None:
        """Accept what ``pins`` signed for ``cluster_id``."""
        self._pins = pins
        self._cluster_id = cluster_id
        self._clock = clock

    @property
    def server_name(self) -> bytes | None:
        """No SNI: the address says nothing about who serves."""
        return None

    def check(self, leaf: x509.Certificate) -> None:
        """Hold the leaf against the pins."""
        verify_service_certificate(leaf, pins=self._pins, cluster_id=self._cluster_id, now=self._clock.now())


class AttestedServer:
    """The server shows evidence over the nonce that we send as server name; one use only."""

    def __init__(self, validator: Validator, nonce: bytes, clock: Clock) -> None:
        """Judge with ``validator`` over ``nonce`` (32 random bytes)."""
        self._validator = validator
        self._nonce = nonce
        self._clock = clock

    @property
    def server_name(self) -> bytes | None:
        """The nonce in its wire form."""
        return encode_nonce(self._nonce).encode("ascii")

    def check(self, leaf: x509.Certificate) -> None:
        """Judge the evidence in the leaf."""
        opened = open_certificate((leaf,), oid=self._validator.oid, now=self._clock.now())
        self._validator.validate(opened.evidence, user_data=opened.spki_sha256, nonce=self._nonce)


class UnknownServer:
    """Nothing is known of the server: evidence that it gives later must bind this channel, or it was nobody.

    The dates of its certificate say nothing; ``spki_sha256`` (32 bytes) is there after the handshake.
    """

    def __init__(self) -> None:
        """Wait for the handshake."""
        self.spki_sha256 = b""

    @property
    def server_name(self) -> bytes | None:
        """No SNI: there is no name to prove."""
        return None

    def check(self, leaf: x509.Certificate) -> None:
        """Refuse what is not a P-256 certificate signed by its own key; note the key."""
        self.spki_sha256 = server_spki_sha256(leaf)
