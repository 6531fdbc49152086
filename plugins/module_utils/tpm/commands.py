# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Encode commands and decode responses, with their authorisations (part 1, 18 and 19)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import algorithms, ciphers, ec, hashes, modes, padding, rsa
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .structures import Public, Reader, ecc_point, malformed, sized, u8, u16, u32

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.host import Random


# Response codes of a TPM in words (part 2, 6.6; the layers of the TSS in TSS 2.0 Overview, 3.4).

RC_HIERARCHY = 0x085
RC_HANDLE = 0x08B
RC_AUTH_FAIL = 0x08E
RC_POLICY_FAIL = 0x09D
RC_INTEGRITY = 0x09F
RC_BAD_AUTH = 0x0A2
RC_INITIALIZE = 0x100
RC_FAILURE = 0x101
RC_PCR_CHANGED = 0x128
RC_YIELDED = 0x908
RC_TESTING = 0x90A
RC_LOCKOUT = 0x921
RC_RETRY = 0x922

RETRYABLE = frozenset({RC_RETRY, RC_TESTING, RC_YIELDED})
"""The TPM did nothing yet, so the same bytes must be sent again."""

WRONG_AUTH = frozenset({RC_AUTH_FAIL, RC_BAD_AUTH})
"""The auth value is wrong, for entities with and without protection against dictionary attacks."""

_REASONS = {RC_HIERARCHY: Reason.TPM_HIERARCHY_DISABLED, RC_LOCKOUT: Reason.TPM_LOCKOUT}

OUT_OF_SLOTS = frozenset({0x902, 0x903, 0x905, 0x906})
"""The TPM has no room for one more object or session."""

_FORMAT_ONE = {
    0x081: "ASYMMETRIC",
    0x082: "ATTRIBUTES",
    0x083: "HASH",
    0x084: "VALUE",
    0x085: "HIERARCHY",
    0x087: "KEY_SIZE",
    0x088: "MGF",
    0x089: "MODE",
    0x08A: "TYPE",
    0x08B: "HANDLE",
    0x08C: "KDF",
    0x08D: "RANGE",
    0x08E: "AUTH_FAIL",
    0x08F: "NONCE",
    0x090: "PP",
    0x092: "SCHEME",
    0x095: "SIZE",
    0x096: "SYMMETRIC",
    0x097: "TAG",
    0x098: "SELECTOR",
    0x09A: "INSUFFICIENT",
    0x09B: "SIGNATURE",
    0x09C: "KEY",
    0x09D: "POLICY_FAIL",
    0x09F: "INTEGRITY",
    0x0A0: "TICKET",
    0x0A1: "RESERVED_BITS",
    0x0A2: "BAD_AUTH",
    0x0A3: "EXPIRED",
    0x0A4: "POLICY_CC",
    0x0A5: "BINDING",
    0x0A6: "CURVE",
    0x0A7: "ECC_POINT",
}
_FORMAT_ZERO = {
    0x100: "INITIALIZE",
    0x101: "FAILURE",
    0x103: "SEQUENCE",
    0x120: "DISABLED",
    0x121: "EXCLUSIVE",
    0x124: "AUTH_TYPE",
    0x125: "AUTH_MISSING",
    0x126: "POLICY",
    0x127: "PCR",
    0x128: "PCR_CHANGED",
    0x12D: "UPGRADE",
    0x12E: "TOO_MANY_CONTEXTS",
    0x12F: "AUTH_UNAVAILABLE",
    0x130: "REBOOT",
    0x131: "UNBALANCED",
    0x142: "COMMAND_SIZE",
    0x143: "COMMAND_CODE",
    0x144: "AUTHSIZE",
    0x145: "AUTH_CONTEXT",
    0x146: "NV_RANGE",
    0x147: "NV_SIZE",
    0x148: "NV_LOCKED",
    0x149: "NV_AUTHORIZATION",
    0x14A: "NV_UNINITIALIZED",
    0x14B: "NV_SPACE",
    0x14C: "NV_DEFINED",
    0x150: "BAD_CONTEXT",
    0x151: "CPHASH",
    0x152: "PARENT",
    0x153: "NEEDS_TEST",
    0x154: "NO_RESULT",
    0x155: "SENSITIVE",
    0x901: "CONTEXT_GAP",
    0x902: "OBJECT_MEMORY",
    0x903: "SESSION_MEMORY",
    0x904: "MEMORY",
    0x905: "SESSION_HANDLES",
    0x906: "OBJECT_HANDLES",
    0x907: "LOCALITY",
    0x908: "YIELDED",
    0x909: "CANCELED",
    0x90A: "TESTING",
    0x920: "NV_RATE",
    0x921: "LOCKOUT",
    0x922: "RETRY",
    0x923: "NV_UNAVAILABLE",
}
_FORMAT_ONE_BIT = 0x080
_PARAMETER_BIT = 0x040
_SESSION_BIT = 0x800
_LAYER_SHIFT = 16


class ResponseError(TpmError):
    """An error response of the TPM; ``base`` is the response code without the number of handle or parameter.

    ``about_parameter``: the TPM refused a parameter, not the authorisation or its own state.
    """

    def __init__(self, code: int, command: str, *, reason: Reason | None = None) -> None:
        self.code_number = code
        self.base = base(code)
        chosen = reason or _REASONS.get(self.base, Reason.TPM_COMMAND_FAILED)
        super().__init__(f"expected success of {command}, got {describe(code)}", reason=chosen, hint=_hint(code))
        self.about_parameter = code & (_FORMAT_ONE_BIT | _PARAMETER_BIT) == _FORMAT_ONE_BIT | _PARAMETER_BIT


def base(code: int) -> int:
    """Return the response code without the number of the parameter, handle or session."""
    return code & 0x0BF if code & _FORMAT_ONE_BIT and not code >> _LAYER_SHIFT else code


def describe(code: int) -> str:
    """Return a response code in words, for example ``TPM_RC_INTEGRITY (0x1DF, parameter 1)``."""
    if code >> _LAYER_SHIFT:
        return f"response code {code:#X} of software layer {code >> _LAYER_SHIFT} above the TPM"
    if not code & _FORMAT_ONE_BIT:
        return f"TPM_RC_{_FORMAT_ZERO.get(code, 'unknown')} (0x{code:03X})"
    name = _FORMAT_ONE.get(base(code), "unknown")
    return f"TPM_RC_{name} (0x{code:03X}{_place(code)})"


def _place(code: int) -> str:
    number = code >> 8 & 0xF
    if code & _PARAMETER_BIT:
        return f", parameter {number}"
    if code & _SESSION_BIT:
        return f", session {number & 7}"
    return f", handle {number}" if number else ""


def _hint(code: int) -> str | None:
    if code == RC_INITIALIZE:
        return "The TPM was not started since its reset: firmware does this; swtpm needs --flags startup-clear."
    if code in OUT_OF_SLOTS:
        return "Other programs have left objects in the TPM: use device:/dev/tpmrm0, or tpm2_flushcontext -t and -l."
    return None


_HEADER_SIZE = 10
_NAMES = {value: name.removeprefix("CC_") for name, value in vars(c).items() if name.startswith("CC_")}


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of the TPM: its handle and its Name, which HMACs cover."""

    handle: int
    name: bytes

    @classmethod
    def of(cls, handle: int) -> Entity:
        """Return a register, session or hierarchy, whose Name is its handle."""
        return cls(handle, u32(handle))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKey:
    """A key in the TPM. ``certificates`` of an EK: its own in DER, then those of its issuers in the TPM."""

    handle: int
    public: Public
    name: bytes
    certificates: tuple[bytes, ...] = ()

    @property
    def entity(self) -> Entity:
        """The key as a handle of a command."""
        return Entity(self.handle, self.name)

    @property
    def persistent(self) -> bool:
        """Whether the key is persistent in the TPM."""
        return self.handle >= c.FIRST_PERSISTENT


class Authorization(Protocol):
    """One element of the authorisation area."""

    def encrypt(self, parameters: bytes) -> bytes:
        """Return the command's parameters, with the first one encrypted if this session encrypts."""

    def authorize(self, cp_hash: bytes) -> bytes:
        """Return the TPMS_AUTH_COMMAND."""

    def verify(self, rp_hash: bytes, nonce: bytes, attributes: int, code: bytes) -> None:
        """Verify one TPMS_AUTH_RESPONSE; raises TPM_RESPONSE_FORGED."""

    def decrypt(self, parameters: bytes) -> bytes:
        """Return the response's parameters, with the first one decrypted if this session encrypts."""


class Password:
    """The empty password in clear text, for objects and hierarchies without a password."""

    def encrypt(self, parameters: bytes) -> bytes:
        """Return the parameters unchanged."""
        return parameters

    def authorize(self, cp_hash: bytes) -> bytes:  # noqa: ARG002 - a password covers nothing
        """Return TPM_RS_PW with an empty password."""
        return u32(c.RS_PASSWORD) + sized(b"") + u8(c.SESSION_CONTINUE) + sized(b"")

    def verify(self, rp_hash: bytes, nonce: bytes, attributes: int, code: bytes) -> None:
        """Do nothing, since a password does not authenticate the response."""

    def decrypt(self, parameters: bytes) -> bytes:
        """Return the parameters unchanged."""
        return parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command; ``auths`` authorise its first handles in order; ``returns_handle``: the reply has a handle."""

    code: int
    handles: tuple[Entity, ...] = ()
    parameters: bytes = b""
    auths: tuple[Authorization, ...] = ()
    returns_handle: bool = False

    @property
    def name(self) -> str:
        """The command's name in the specification, for errors."""
        return f"TPM2_{_NAMES.get(self.code, hex(self.code))}"


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful response: its handle (0 if it has none) and a reader over its decrypted parameters."""

    handle: int
    parameters: Reader


def encode(command: Command) -> bytes:
    """Return the bytes of ``command``, first encrypted and then authorised (part 1, 19.6 and 21)."""
    parameters = command.parameters
    for auth in command.auths:
        parameters = auth.encrypt(parameters)
    names = b"".join(entity.name for entity in command.handles)
    cp_hash = hashlib.sha256(u32(command.code) + names + parameters).digest()
    area = b"".join(auth.authorize(cp_hash) for auth in command.auths)
    body = b"".join(u32(entity.handle) for entity in command.handles)
    body += (u32(len(area)) + area if area else b"") + parameters
    tag = c.TAG_SESSIONS if area else c.TAG_NO_SESSIONS
    if _HEADER_SIZE + len(body) > c.MAX_COMMAND:
        raise malformed(f"a command of at most {c.MAX_COMMAND} bytes", f"{_HEADER_SIZE + len(body)}")
    return u16(tag) + u32(_HEADER_SIZE + len(body)) + u32(command.code) + body


def response_code(response: bytes) -> int:
    """Return the response code; the transport ensures that the header is complete."""
    return int.from_bytes(response[6:10], "big")


def decode(command: Command, response: bytes) -> Reply:
    """Return the TPM's reply to ``command``.

    Raises `ResponseError` for an error, TPM_MALFORMED, and TPM_RESPONSE_FORGED if a session's HMAC is wrong.
    """
    reader = Reader(response, f"the response to {command.name}")
    tag, size, code = reader.u16(), reader.u32(), reader.u32()
    if size != len(response):
        raise malformed(f"{size} bytes in the response to {command.name}", f"{len(response)}")
    if code:
        raise ResponseError(code, command.name)
    if tag != (c.TAG_SESSIONS if command.auths else c.TAG_NO_SESSIONS):
        raise _unauthenticated(command) if command.auths else malformed("a response without sessions", f"{tag:#06x}")
    handle = reader.u32() if command.returns_handle else 0
    if not command.auths:
        return Reply(handle, reader)
    return Reply(handle, Reader(_open_parameters(command, reader), f"the response to {command.name}"))


def _open_parameters(command: Command, reader: Reader) -> bytes:
    parameters = reader.take(reader.u32())
    rp_hash = hashlib.sha256(u32(0) + u32(command.code) + parameters).digest()
    for auth in command.auths:
        auth.verify(rp_hash, reader.sized(c.MAX_DIGEST), reader.u8(), reader.sized(c.MAX_DIGEST))
    reader.end()
    for auth in command.auths:
        parameters = auth.decrypt(parameters)
    return parameters


def _unauthenticated(command: Command) -> TpmError:
    return TpmError(
        f"expected an authenticated response to {command.name}, got one without", reason=Reason.TPM_RESPONSE_FORGED
    )


# Sessions salted to a key of the TPM, with AES-128-CFB parameter encryption (part 1, 19 and 21).

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
