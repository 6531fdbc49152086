# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions salted to a key of the TPM, with AES-128-CFB parameter encryption (part 1, 19 and 21)."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from .._deps.crypto import algorithms, ciphers, ec, hashes, modes, padding, rsa
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .commands import Command, Entity, LoadedKey, Reply
from .structures import Public, Reader, ecc_point, malformed, sized, u8, u16, u32

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.host import Random


# Key derivation and the cipher of the TPM: KDFa, KDFe and AES-128-CFB, all with SHA-256 (part 1, 11.4.10).

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
    """Return ``data`` encrypted with AES-CFB in segments of one block (SP 800-38A, 6.3)."""
    return _cfb(key, iv, data, encrypting=True)


def cfb_decrypt(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Return the plaintext of data from `cfb_encrypt`."""
    return _cfb(key, iv, data, encrypting=False)


def _cfb(key: bytes, iv: bytes, data: bytes, *, encrypting: bool) -> bytes:
    # `cryptography` moves CFB between modules from version to version; over single blocks it needs few lines.
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
        except ValueError as error:  # for example an even modulus, which no real key has
            raise malformed("an RSA key that encrypts", "another number") from error
    ephemeral = ec.generate_private_key(public.curve)
    ours, theirs = ecc_point(ephemeral.public_key()), ecc_point(public)
    shared = ephemeral.exchange(ec.ECDH(), public)
    return kdf_e(shared, label, context=ours.x + theirs.x), ours.marshal()


_NONCE_SIZE = 32


class Session:
    """One HMAC or policy session; with ``encrypts`` it encrypts the first parameter in both directions.

    ``auth`` is the auth value of the authorised entity, empty for almost every entity (part 1, 19.6.5). HMAC and cipher
    keys are made from it and the session's own key. The session is stateful (rolling nonces), so its commands must run
    one after the other.
    """

    def __init__(
        self, *, handle: int, key: bytes, nonce_caller: bytes, nonce_tpm: bytes, random: Random, encrypts: bool = True
    ) -> None:
        self.handle = handle
        self.auth = b""
        self._session_key = key
        self._nonce_caller = nonce_caller
        self._nonce_tpm = nonce_tpm
        self._random = random
        self._encrypts = encrypts
        self._base_attributes = c.SESSION_CONTINUE | (c.SESSION_ENCRYPT if encrypts else 0)
        self._attributes = self._base_attributes

    @property
    def _key(self) -> bytes:
        return self._session_key + self.auth.rstrip(b"\0")  # a TPM stores auth values without trailing zeros

    @property
    def entity(self) -> Entity:
        """The session as a handle of a policy command."""
        return Entity.of(self.handle)

    def encrypt(self, parameters: bytes) -> bytes:
        """Roll our nonce and return ``parameters`` with the content of the leading TPM2B, if any, encrypted."""
        self._nonce_caller = self._random.token(_NONCE_SIZE)
        self._attributes = self._base_attributes
        if not (parameters and self._encrypts):
            return parameters
        self._attributes |= c.SESSION_DECRYPT
        key, iv = self._cipher_key(newer=self._nonce_caller, older=self._nonce_tpm)
        reader = Reader(parameters, "the first parameter of a command")
        return sized(cfb_encrypt(key, iv, reader.sized(c.MAX_BUFFER))) + reader.rest()

    def authorize(self, cp_hash: bytes) -> bytes:
        """Return the TPMS_AUTH_COMMAND: handle, nonce, attributes and HMAC."""
        code = self._hmac(cp_hash, newer=self._nonce_caller, older=self._nonce_tpm, attributes=self._attributes)
        return u32(self.handle) + sized(self._nonce_caller) + u8(self._attributes) + sized(code)

    def verify(self, rp_hash: bytes, nonce: bytes, attributes: int, code: bytes) -> None:
        """Verify that this response is from the TPM that knows the salt; raises TPM_RESPONSE_FORGED."""
        expected = self._hmac(rp_hash, newer=nonce, older=self._nonce_caller, attributes=attributes)
        if not hmac.compare_digest(expected, code):
            raise TpmError(
                "expected the HMAC of the salted session in the response, got another",
                reason=Reason.TPM_RESPONSE_FORGED,
            )
        self._nonce_tpm = nonce

    def decrypt(self, parameters: bytes) -> bytes:
        """Return ``parameters`` with the content of the leading TPM2B, if any, decrypted."""
        if not (parameters and self._encrypts):
            return parameters
        key, iv = self._cipher_key(newer=self._nonce_tpm, older=self._nonce_caller)
        reader = Reader(parameters, "the first parameter of a response")
        return sized(cfb_decrypt(key, iv, reader.sized(c.MAX_BUFFER))) + reader.rest()

    def _hmac(self, parameter_hash: bytes, *, newer: bytes, older: bytes, attributes: int) -> bytes:
        return hmac.digest(self._key, parameter_hash + newer + older + u8(attributes), "sha256")

    def _cipher_key(self, *, newer: bytes, older: bytes) -> tuple[bytes, bytes]:
        stream = kdf_a(self._key, b"CFB", context=newer + older, size=2 * KEY_SIZE)
        return stream[:KEY_SIZE], stream[KEY_SIZE:]


class PendingSession:
    """A session to start: the command to send, and the session from its reply.

    Without ``key`` the session is not salted, and its HMACs depend only on the auth value of the authorised entity.
    """

    def __init__(self, key: LoadedKey | None, kind: int, random: Random, *, encrypts: bool = True) -> None:
        self._salt, encrypted = share_secret(key.public, b"SECRET", random) if key else (b"", b"")
        self._encrypts = encrypts
        self._nonce = random.token(_NONCE_SIZE)
        self._random = random
        symmetric = u16(c.ALG_AES) + u16(KEY_SIZE * 8) + u16(c.ALG_CFB)
        self.command = Command(
            code=c.CC_START_AUTH_SESSION,
            handles=(key.entity if key else Entity.of(c.RH_NULL), Entity.of(c.RH_NULL)),
            parameters=sized(self._nonce) + sized(encrypted) + u8(kind) + symmetric + u16(c.ALG_SHA256),
            returns_handle=True,
        )

    def finish(self, reply: Reply) -> Session:
        """Return the session that the TPM opened."""
        nonce_tpm = reply.parameters.sized(c.MAX_DIGEST)
        reply.parameters.end()
        key = kdf_a(self._salt, b"ATH", context=nonce_tpm + self._nonce) if self._salt else b""
        return Session(
            handle=reply.handle,
            key=key,
            nonce_caller=self._nonce,
            nonce_tpm=nonce_tpm,
            random=self._random,
            encrypts=self._encrypts,
        )


def pcr_policy_digest(selection: bytes, values: bytes) -> bytes:
    """Return the policy digest of one PolicyPCR over ``values`` (concatenated) of a TPML_PCR_SELECTION."""
    start = bytes(hashlib.sha256().digest_size)
    return hashlib.sha256(start + u32(c.CC_POLICY_PCR) + selection + hashlib.sha256(values).digest()).digest()
