# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sealing box: HPKE to a one-time key inside AES-256-GCM under the activation secret.

    box = version ‖ nonce ‖ AES-256-GCM(HKDF-SHA256(s, B), HPKE-Seal(one-time key, info = B, plaintext))

Both layers must open. The outer layer needs the secret s, which only the machine with the endorsement key could
activate. The inner layer needs the private key of the one-time key that the verified quote names, which no later boot
of that machine has.
"""

from __future__ import annotations

from .._deps.crypto import aead, exceptions, hashes, hkdf, hpke, serialization, x25519
from ..core.host import Random, SystemRandom
from ..errors import Refusal
from ..proto.messages import message_class, parse
from ..reasons import Reason
from .binding import label

BOX_VERSION = 1
"""The only supported version of the box."""

MAX_BOX_BYTES = 1 << 20

_NONCE_BYTES = 12
_KEY_BYTES = 32
_USE = "seal"


class OneTimeKey:
    """An X25519 key pair for one exchange; the private key is never shown."""

    __slots__ = ("_private", "public")

    def __init__(self, private: x25519.X25519PrivateKey) -> None:
        """Store the private key and its public key (32 bytes)."""
        self._private = private
        self.public: bytes = private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )

    def __repr__(self) -> str:
        """Return a text with the public key only."""
        return f"OneTimeKey(public={self.public.hex()})"

    @classmethod
    def generate(cls) -> OneTimeKey:
        """Return a new key pair."""
        return cls(x25519.X25519PrivateKey.generate())

    @classmethod
    def restore(cls, private: bytes) -> OneTimeKey:
        """Return the key pair of the 32 bytes that `export` returned."""
        return cls(x25519.X25519PrivateKey.from_private_bytes(private))

    def export(self) -> bytes:
        """Return the private key, 32 bytes; it may be stored only on the root-only tmpfs of this boot."""
        return self._private.private_bytes(
            serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        )

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Return the plaintext of an HPKE message; raises `cryptography.exceptions.InvalidTag`."""
        return _suite().decrypt(sealed, self._private, info)


def seal(plaintext: bytes, *, secret: bytes, binding: bytes, recipient: bytes, random: Random | None = None) -> bytes:
    """Return the box (serialised ``attested.v1.SealedBox``) of ``plaintext`` for one exchange.

    ``secret``: the activation secret s; ``binding``: B, 32 bytes; ``recipient``: the one-time public key of the quote.
    Raises `Refusal` BINDING_MALFORMED if the public key gives no shared secret.
    """
    try:
        inner = _suite().encrypt(plaintext, x25519.X25519PublicKey.from_public_bytes(recipient), binding)
    except ValueError as error:
        raise Refusal(
            f"expected an X25519 public key, got {recipient.hex() or 'nothing'}", reason=Reason.BINDING_MALFORMED
        ) from error
    nonce = (random or SystemRandom()).token(_NONCE_BYTES)
    box = message_class("attested.v1.SealedBox")(version=BOX_VERSION, nonce=nonce)
    box.ciphertext = _outer(secret, binding).encrypt(nonce, inner, _associated_data())
    return bytes(box.SerializeToString())


def open_sealed(box: bytes, *, secret: bytes, binding: bytes, one_time_key: OneTimeKey) -> bytes:
    """Return the plaintext of ``box``.

    Raises `Refusal` SEAL_UNOPENABLE (another secret, exchange or key, or changed bytes), PROTOCOL_VERSION,
    MESSAGE_MALFORMED or MESSAGE_TOO_LARGE.
    """
    message = parse("attested.v1.SealedBox", box, limit=MAX_BOX_BYTES)
    if message.version != BOX_VERSION:
        raise Refusal(
            f"expected a sealed box of version {BOX_VERSION}, got version {message.version}",
            reason=Reason.PROTOCOL_VERSION,
        )
    try:
        inner = _outer(secret, binding).decrypt(message.nonce, message.ciphertext, _associated_data())
        return one_time_key.open(inner, binding)
    except (exceptions.InvalidTag, ValueError) as error:
        raise Refusal(
            "expected a box sealed to this machine, this exchange and this one-time key, got a box that does not open",
            reason=Reason.SEAL_UNOPENABLE,
        ) from error


def seal_to_key(plaintext: bytes, *, recipient: bytes, binding: bytes) -> bytes:
    """Return the HPKE message of ``plaintext`` to an enrolled key, for a machine without a TPM to activate a secret.

    ``recipient``: X25519 public key; ``binding``: the report data of the exchange. Raises `Refusal` BINDING_MALFORMED.
    """
    try:
        return _suite().encrypt(plaintext, x25519.X25519PublicKey.from_public_bytes(recipient), _to_key(binding))
    except ValueError as error:
        raise Refusal(
            f"expected an X25519 public key, got {recipient.hex() or 'nothing'}", reason=Reason.BINDING_MALFORMED
        ) from error


def open_to_key(sealed: bytes, *, key: OneTimeKey, binding: bytes) -> bytes:
    """Return the plaintext of a message of `seal_to_key`; raises `Refusal` SEAL_UNOPENABLE."""
    try:
        return key.open(sealed, _to_key(binding))
    except (exceptions.InvalidTag, ValueError) as error:
        raise Refusal(
            "expected a message to this key for this exchange, got a message that does not open",
            reason=Reason.SEAL_UNOPENABLE,
        ) from error


def _to_key(binding: bytes) -> bytes:
    return label(f"{_USE}/key") + binding


def _suite() -> hpke.Suite:
    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


def _outer(secret: bytes, binding: bytes) -> aead.AESGCM:
    key = hkdf.HKDF(algorithm=hashes.SHA256(), length=_KEY_BYTES, salt=binding, info=label(_USE)).derive(secret)
    return aead.AESGCM(key)


def _associated_data() -> bytes:
    return label(f"{_USE}/box") + BOX_VERSION.to_bytes(4, "big")
