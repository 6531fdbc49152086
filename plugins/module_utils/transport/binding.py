# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digest that a bound quote covers: one digest over all parts of one exchange.

Pure functions over bytes. Every part has a length prefix, so no two different inputs give the same bytes. The first
part is a label with product, purpose and protocol version; the cluster id is a separate part.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum

from ..errors import Refusal
from ..reasons import Reason

PROTOCOL_VERSION = 1
"""The version of labels and messages of this release."""

MINIMUM_PROTOCOL_VERSION = 1
"""The oldest version that this release accepts from a peer; a cluster may demand a later one, never an older one."""

PRODUCT = "attested.kubernetes"

_DIGEST_BYTES = 32
_CLUSTER_ID_BYTES = 32


class Purpose(Enum):
    """The purpose of evidence; evidence for one purpose does not verify for another."""

    ENROLL = "enroll"
    INIT = "init"
    JOIN = "join"
    RECOVER = "recover"
    SHARE = "share"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingInput:
    """The parts of one exchange.

    ``cluster_id`` has 32 bytes, or is empty for enrolment before a cluster exists. ``exporter`` (RFC 9266) and
    ``spki_sha256`` (of the attesting peer's certificate) have 32 bytes, or are both empty over ssh, which a join does
    not allow. ``nonce``, ``proof``, ``request_sha256`` and ``hpke_public`` have 32 bytes. Raises `Refusal`
    BINDING_MALFORMED.
    """

    purpose: Purpose
    cluster_id: bytes
    exporter: bytes
    spki_sha256: bytes
    nonce: bytes
    proof: bytes
    request_sha256: bytes
    hpke_public: bytes
    protocol_version: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        """Raise BINDING_MALFORMED with all parts of a wrong length."""
        wrong = [
            f"{name} of {len(getattr(self, name))} bytes"
            for name in ("nonce", "proof", "request_sha256", "hpke_public")
            if len(getattr(self, name)) != _DIGEST_BYTES
        ]
        if len(self.cluster_id) not in self._cluster_id_lengths():
            wrong.append(f"cluster_id of {len(self.cluster_id)} bytes")
        if (len(self.exporter), len(self.spki_sha256)) not in self._channel_lengths():
            wrong.append(f"exporter of {len(self.exporter)} and spki_sha256 of {len(self.spki_sha256)} bytes")
        if wrong:
            raise Refusal(
                f"expected parts of {_DIGEST_BYTES} bytes for {self.purpose.value}, got {', '.join(wrong)}",
                reason=Reason.BINDING_MALFORMED,
            )

    def _cluster_id_lengths(self) -> tuple[int, ...]:
        if self.purpose is Purpose.ENROLL:
            return (0, _CLUSTER_ID_BYTES)
        return (_CLUSTER_ID_BYTES,)

    def _channel_lengths(self) -> tuple[tuple[int, int], ...]:
        bound = (_DIGEST_BYTES, _DIGEST_BYTES)
        return (bound,) if self.purpose is Purpose.JOIN else (bound, (0, 0))


def label(use: str, *, version: int = PROTOCOL_VERSION) -> bytes:
    """Return the domain-separation label of ``use``, for example ``attested.kubernetes/bind/join/v1``."""
    return f"{PRODUCT}/{use}/v{version}".encode()


def length_prefixed(*parts: bytes) -> bytes:
    """Join the parts, each after its length in 8 big-endian bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def binding_digest(parts: BindingInput) -> bytes:
    """Return B, 32 bytes: the qualifying data of the bound quote, and the context of data that is sealed to it."""
    return hashlib.sha256(
        length_prefixed(
            label(f"bind/{parts.purpose.value}", version=parts.protocol_version),
            parts.cluster_id,
            parts.exporter,
            parts.spki_sha256,
            parts.nonce,
            parts.proof,
            parts.request_sha256,
            parts.hpke_public,
        )
    ).digest()


def challenge_proof(secret: bytes, nonce: bytes) -> bytes:
    """Return the 32 bytes that prove knowledge of the activated secret: HMAC-SHA256(secret, label ‖ nonce)."""
    return hmac.digest(secret, label("proof") + nonce, "sha256")


def handshake_digest(*, nonce: bytes, spki_sha256: bytes) -> bytes:
    """Return the qualifying data of E1, the evidence in a certificate: over the verifier's nonce and the key."""
    return hashlib.sha256(length_prefixed(label("doorkeeper"), nonce, spki_sha256)).digest()
