# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Encrypt and decrypt a kit: with a passphrase, to age recipients, or with a key in a PKCS#11 token.

A kit for recipients is a file of age (`age -d` decrypts it); the other kits are files of `envelope`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import argon2, asymmetric, exceptions, hashes, padding, rsa, serialization
from ..errors import KeyServiceError
from ..keyservice.master import SecretBytes
from ..reasons import Reason
from ..transport.binding import length_prefixed
from .age_file import MAGIC, close_to, open_by
from .envelope import (
    FILE_KEY_BYTES,
    MAX_FILE_BYTES,
    NONCE_BYTES,
    Envelope,
    PassphraseFacts,
    TokenFacts,
    open_envelope,
    read_envelope,
    seal_envelope,
)
from .kit import Kit, malformed

if TYPE_CHECKING:
    from ..core.host import Random

_SALT_BYTES = 16
_MIN_RSA_BITS = 2048
_MAX_RSA_BITS = 8192


class Token(Protocol):
    """A PKCS#11 token after the login."""

    def unwrap(self, facts: TokenFacts) -> SecretBytes:
        """Return the file key; raises KIT_KEY_WRONG if the token does not have the key of ``facts``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The Argon2id cost of one guess of a passphrase: memory in KiB, passes, lanes (RFC 9106)."""

    memory_kib: int = 256 << 10
    passes: int = 4
    lanes: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """How to encrypt a kit: exactly one of the three; ``token_key`` is an RSA public key in PEM."""

    passphrase: SecretBytes | None = field(default=None, repr=False)
    recipients: tuple[str, ...] = ()
    token_key: bytes = b""
    cost: Cost = Cost()

    def binding(self) -> SecretBytes:
        """Return bytes that differ for different locks; they include the passphrase."""
        cost = self.cost
        stretched = f"{cost.memory_kib} {cost.passes} {cost.lanes}".encode("ascii")
        passphrase = self.passphrase.reveal() if self.passphrase is not None else b""
        recipients = " ".join(sorted(self.recipients)).encode("utf-8")
        return SecretBytes(length_prefixed(stretched, passphrase, recipients, self.token_key))


@dataclass(frozen=True, slots=True, kw_only=True)
class KitKeys:
    """The keys to decrypt a kit; ``identities`` are lines ``AGE-SECRET-KEY-1…``."""

    passphrase: SecretBytes | None = field(default=None, repr=False)
    identities: tuple[SecretBytes, ...] = field(default=(), repr=False)
    token: Token | None = None


def close_kit(kit: Kit, lock: Lock, *, random: Random) -> bytes:
    """Return the file of ``kit`` under ``lock``; raises KIT_KEY_UNUSABLE for a malformed recipient or token key."""
    kit.require_whole()
    content = kit.to_bytes()
    if lock.recipients:
        return close_to(content, lock.recipients)
    file_key, facts = _new_file_key(lock, random)
    return seal_envelope(
        content, cluster=kit.cluster_id, facts=facts, file_key=file_key, nonce=random.token(NONCE_BYTES)
    )


def describe_kit(data: bytes) -> dict[str, str]:
    """Return what is readable in the file without a key, in words; raises as `read_envelope` does."""
    if data.startswith(MAGIC):
        return {"closed by": "recipients of age; the cluster is readable after decryption only"}
    envelope = read_envelope(data)
    return {"closed by": _ways(envelope), "cluster id": envelope.cluster_id.hex()}


def open_kit(data: bytes, keys: KitKeys, *, expected: bytes = b"") -> Kit:
    """Return the kit of the file ``data``.

    1. It is a complete file of this version (`read_envelope`). 2. It is of the cluster ``expected``, if given
    (KIT_OTHER_CLUSTER). 3. ``keys`` has a key of the right kind, and it is the right one (KIT_KEY_WRONG).
    4. The file is unaltered (KIT_DAMAGED). 5. Its content is a kit of one cluster (`Kit.from_bytes`), the same one that
    its public lines name (KIT_DAMAGED).
    """
    if data.startswith(MAGIC):
        if len(data) > MAX_FILE_BYTES:
            raise malformed(f"at most {MAX_FILE_BYTES} bytes as a kit")
        if not keys.identities:
            raise _missing("an identity of age")
        kit = Kit.from_bytes(open_by(data, keys.identities).reveal())
        _require_cluster(kit.cluster_id, expected)
        return kit
    envelope = read_envelope(data)  # 1
    _require_cluster(envelope.cluster_id, expected)  # 2
    content = open_envelope(envelope, _file_key(envelope, keys))  # 3, 4
    kit = Kit.from_bytes(content.reveal())  # 5
    if kit.cluster_id != envelope.cluster_id:
        raise KeyServiceError(
            "expected a kit of the cluster that it names, the kit was altered", reason=Reason.KIT_DAMAGED
        )
    return kit


def stretch(passphrase: SecretBytes, facts: PassphraseFacts) -> SecretBytes:
    """Return the file key of a passphrase: Argon2id, 32 bytes."""
    derivation = argon2.Argon2id(
        salt=facts.salt,
        length=FILE_KEY_BYTES,
        iterations=facts.passes,
        lanes=facts.lanes,
        memory_cost=facts.memory_kib,
    )
    return SecretBytes(derivation.derive(passphrase.reveal()))


def token_key_digest(public: rsa.RSAPublicKey) -> bytes:
    """Return the name of a token's key: SHA-256 of its SubjectPublicKeyInfo."""
    encoded = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).digest()


def _new_file_key(lock: Lock, random: Random) -> tuple[SecretBytes, PassphraseFacts | TokenFacts]:
    if lock.passphrase is not None:
        cost = lock.cost
        facts = PassphraseFacts(
            memory_kib=cost.memory_kib, passes=cost.passes, lanes=cost.lanes, salt=random.token(_SALT_BYTES)
        )
        return stretch(lock.passphrase, facts), facts
    public = _token_key(lock.token_key)
    file_key = random.token(FILE_KEY_BYTES)
    wrapped = public.encrypt(file_key, oaep())
    return SecretBytes(file_key), TokenFacts(key_sha256=token_key_digest(public), wrapped=wrapped)


def oaep() -> asymmetric.padding.OAEP:
    """Return the padding of a wrapped file key: OAEP with SHA-1, which every token supports (ADR 0031)."""
    digest = hashes.SHA1()  # OAEP needs no resistance to collisions
    return padding.OAEP(mgf=padding.MGF1(digest), algorithm=digest, label=None)


def _token_key(pem: bytes) -> rsa.RSAPublicKey:
    try:
        public = serialization.load_pem_public_key(pem)
    except (ValueError, exceptions.UnsupportedAlgorithm):
        public = None
    if not isinstance(public, rsa.RSAPublicKey) or not _MIN_RSA_BITS <= public.key_size <= _MAX_RSA_BITS:
        raise KeyServiceError(
            f"expected an RSA public key of {_MIN_RSA_BITS} to {_MAX_RSA_BITS} bits in PEM as the token's key",
            reason=Reason.KIT_KEY_UNUSABLE,
        )
    return public


def _file_key(envelope: Envelope, keys: KitKeys) -> SecretBytes:
    if isinstance(envelope.facts, TokenFacts):
        if keys.token is None:
            raise _missing("a PKCS#11 token")
        return keys.token.unwrap(envelope.facts)
    if keys.passphrase is None:
        raise _missing("a passphrase")
    return stretch(keys.passphrase, envelope.facts)


def _ways(envelope: Envelope) -> str:
    facts = envelope.facts
    if isinstance(facts, TokenFacts):
        return f"the RSA key {facts.key_sha256.hex()} of a PKCS#11 token"
    return f"a passphrase (Argon2id, {facts.memory_kib >> 10} MiB, {facts.passes} passes, {facts.lanes} lanes)"


def _require_cluster(found: bytes, expected: bytes) -> None:
    if expected and found != expected:
        raise KeyServiceError(
            f"expected a kit of cluster {expected.hex()}, got one of {found.hex()}", reason=Reason.KIT_OTHER_CLUSTER
        )


def _missing(what: str) -> KeyServiceError:
    return KeyServiceError(f"expected {what} to open this kit, got none", reason=Reason.KIT_KEY_WRONG)
