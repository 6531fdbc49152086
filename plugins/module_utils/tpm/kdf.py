# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Key derivation and the cipher of the TPM: KDFa, KDFe and AES-128-CFB, all with SHA-256 (part 1, 11.4.10)."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from .._deps.crypto import algorithms, ciphers, ec, hashes, modes, padding, rsa
from .marshal import malformed
from .structures import Public, ecc_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..system import Random

KEY_SIZE = 16
_BLOCK = 16


def kdf_a(key: bytes, label: bytes, *, context: bytes = b"", size: int = 32) -> bytes:
    """Return ``size`` bytes of KDFa: SP 800-108 counter mode, HMAC-SHA256; ``context`` is contextU ‖ contextV."""
    tail = label + b"\0" + context + (size * 8).to_bytes(4, "big")
    return _blocks(size, lambda counter: hmac.digest(key, counter + tail, "sha256"))


def kdf_e(shared: bytes, label: bytes, *, context: bytes) -> bytes:
    """Return 32 bytes of KDFe: SP 800-56A with SHA-256; ``context`` is partyUInfo ‖ partyVInfo."""
    return _blocks(32, lambda counter: hashlib.sha256(counter + shared + label + b"\0" + context).digest())


def _blocks(size: int, block: Callable[[bytes], bytes]) -> bytes:
    stream, counter = b"", 0
    while len(stream) < size:
        counter += 1
        stream += block(counter.to_bytes(4, "big"))
    return stream[:size]


def cfb_encrypt(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Return ``data`` under AES-CFB with segments of a block (SP 800-38A, 6.3)."""
    return _cfb(key, iv, data, encrypting=True)


def cfb_decrypt(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Undo `cfb_encrypt`."""
    return _cfb(key, iv, data, encrypting=False)


def _cfb(key: bytes, iv: bytes, data: bytes, *, encrypting: bool) -> bytes:
    # `cryptography` moves CFB between modules from version to version; over single blocks it is these few lines.
    block = ciphers.Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    previous, result = iv, b""
    for start in range(0, len(data), _BLOCK):
        segment = data[start : start + _BLOCK]
        out = bytes(a ^ b for a, b in zip(segment, block.update(previous), strict=False))
        previous = out if encrypting else segment
        result += out
    return result


def share_secret(key: Public, label: bytes, random: Random) -> tuple[bytes, bytes]:
    """Return a fresh secret of 32 bytes and its encryption to ``key`` (part 1, B.10.2 and C.6.1).

    The encryption is the content of a TPM2B_ENCRYPTED_SECRET: OAEP for RSA, an ephemeral point for ECC.
    """
    public = key.key()
    if isinstance(public, rsa.RSAPublicKey):
        secret = random.token(32)
        scheme = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label + b"\0")
        try:
            return secret, public.encrypt(secret, scheme)
        except ValueError as error:  # an even modulus, for example: nobody's key
            raise malformed("an RSA key that encrypts", "another number") from error
    ephemeral = ec.generate_private_key(public.curve)
    ours, theirs = ecc_point(ephemeral.public_key()), ecc_point(public)
    shared = ephemeral.exchange(ec.ECDH(), public)
    return kdf_e(shared, label, context=ours.x + theirs.x), ours.marshal()
