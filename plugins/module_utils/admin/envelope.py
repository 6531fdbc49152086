# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text form of an encrypted kit: lines with format and parameters, the encrypted content, and an end line.

    attested-kit/v1
    cluster-id: <64 hex digits>
    closed-by: passphrase | token
    ...its parameters (`PassphraseFacts`, `TokenFacts`)...
    key-check: <64 hex digits>
    nonce: <24 hex digits>
    <empty line>
    <base64 in lines of 76>
    end: <SHA-256 over all before this line, 64 hex digits>

A file key (32 bytes) comes from the passphrase or from the token. HKDF-SHA256 with an info of product, purpose, version
and cluster id derives a body key and the key check from it, 32 bytes each. The content is encrypted by AES-256-GCM
under the body key; all lines above it are authenticated with it. The key check distinguishes a wrong passphrase from
damage, and no file opens under two keys. The end line authenticates nothing: it finds accidental damage before the
passphrase is requested.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.crypto import aead, argon2, asymmetric, exceptions, hashes, hkdf, padding, rsa, serialization
from .._deps.pkcs11 import pkcs11, pkcs11_errors
from ..errors import KeyServiceError
from ..keyservice.master import SecretBytes
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from .age_file import MAGIC, close_to, open_by
from .kit import FORMAT, Kit, malformed, wrong_format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.host import Random


MAX_FILE_BYTES = 12 << 20
FILE_KEY_BYTES = 32
NONCE_BYTES = 12

_CHECK_BYTES = 32
_LINE = 76
_MAX_HEAD_BYTES = 8192
_END = re.compile(rb"\nend: ([0-9a-f]{64})\n\Z")
_COSTS = {"memory-kib": (64 << 10, 1 << 20), "passes": (1, 16), "lanes": (1, 16)}
_HEXADECIMAL = {"cluster-id": 64, "salt": 32, "token-key": 64, "wrapped-key": 0, "key-check": 64, "nonce": 24}
_MAX_WRAPPED_DIGITS = 2048
_FIELDS = {
    "passphrase": ("cluster-id", "closed-by", "memory-kib", "passes", "lanes", "salt", "key-check", "nonce"),
    "token": ("cluster-id", "closed-by", "token-key", "wrapped-key", "key-check", "nonce"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassphraseFacts:
    """The Argon2id parameters of the passphrase: memory in KiB, passes, lanes, and a salt of 16 bytes."""

    memory_kib: int
    passes: int
    lanes: int
    salt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """The token's key: SHA-256 of its SubjectPublicKeyInfo, and the file key encrypted to it."""

    key_sha256: bytes
    wrapped: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An encrypted kit with a matching end line, not yet decrypted. ``head`` is all above the content."""

    cluster_id: bytes
    facts: PassphraseFacts | TokenFacts
    key_check: bytes
    nonce: bytes
    head: bytes = field(repr=False)
    body: bytes = field(repr=False)


def seal_envelope(
    content: bytes, *, cluster: bytes, facts: PassphraseFacts | TokenFacts, file_key: SecretBytes, nonce: bytes
) -> bytes:
    """Return the file; ``cluster`` is the cluster id, ``nonce`` 12 bytes that are used once with ``file_key``."""
    body_key, check = _derive(file_key, cluster)
    values = {"cluster-id": cluster.hex(), **_shown(facts), "key-check": check.hex(), "nonce": nonce.hex()}
    lines = [FORMAT, *(f"{name}: {value}" for name, value in values.items())]
    head = ("\n".join(lines) + "\n").encode("ascii")
    sealed = aead.AESGCM(body_key.reveal()).encrypt(nonce, content, head)
    text = b64encode(sealed)
    rows = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    whole = head + b"\n" + b"\n".join(rows) + b"\n"
    return whole + b"end: " + hashlib.sha256(whole).hexdigest().encode("ascii") + b"\n"


def read_envelope(data: bytes) -> Envelope:
    """Return the envelope in ``data``, not yet decrypted.

    1. It is short enough and begins as a kit of this version (KIT_MALFORMED, FILE_VERSION_UNKNOWN). 2. It has its end
    line (KIT_DAMAGED), with the digest of the bytes before it (KIT_DAMAGED). 3. It has the expected lines, in order,
    each within its limits, so that no file costs hours of Argon2id (KIT_MALFORMED). 4. The rest is base64
    (KIT_MALFORMED).
    """
    if len(data) > MAX_FILE_BYTES:  # 1
        raise malformed(f"at most {MAX_FILE_BYTES} bytes as a kit")
    text = data.replace(b"\r\n", b"\n")
    first = text[:64].split(b"\n", 1)[0]
    if first != FORMAT.encode("ascii"):
        raise wrong_format(first.decode("ascii", "replace"))
    ended = _END.search(text)
    if ended is None:  # 2
        raise KeyServiceError("expected the end line of the kit, it is cut off", reason=Reason.KIT_DAMAGED)
    whole = text[: ended.start() + 1]
    if hashlib.sha256(whole).hexdigest().encode("ascii") != ended.group(1):
        raise damaged("the digest of its end line")
    head, gap, rest = whole.partition(b"\n\n")
    if not gap or len(head) > _MAX_HEAD_BYTES:
        raise malformed("an empty line behind the first lines of a kit")
    values = _values(head)  # 3
    return Envelope(
        cluster_id=bytes.fromhex(values["cluster-id"]),
        facts=_facts(values),
        key_check=bytes.fromhex(values["key-check"]),
        nonce=bytes.fromhex(values["nonce"]),
        head=head + b"\n",
        body=_decoded(rest),  # 4
    )


def open_envelope(envelope: Envelope, file_key: SecretBytes) -> SecretBytes:
    """Return the content; raises KIT_KEY_WRONG for another ``file_key``, KIT_DAMAGED if the file was altered."""
    body_key, check = _derive(file_key, envelope.cluster_id)
    if not hmac.compare_digest(check, envelope.key_check):
        raise KeyServiceError("expected the key of this kit, got another one", reason=Reason.KIT_KEY_WRONG)
    try:
        return SecretBytes(aead.AESGCM(body_key.reveal()).decrypt(envelope.nonce, envelope.body, envelope.head))
    except exceptions.InvalidTag:
        raise damaged("content that decrypts") from None


def damaged(expected: str) -> KeyServiceError:
    """Return the refusal of an altered kit."""
    return KeyServiceError(f"expected {expected}, the kit was altered", reason=Reason.KIT_DAMAGED)


def _derive(file_key: SecretBytes, cluster: bytes) -> tuple[SecretBytes, bytes]:
    info = length_prefixed(label("recovery-kit"), cluster)
    both = hkdf.HKDF(algorithm=hashes.SHA256(), length=FILE_KEY_BYTES + _CHECK_BYTES, salt=None, info=info).derive(
        file_key.reveal()
    )
    return SecretBytes(both[:FILE_KEY_BYTES]), both[FILE_KEY_BYTES:]


def _shown(facts: PassphraseFacts | TokenFacts) -> dict[str, str]:
    if isinstance(facts, TokenFacts):
        return {"closed-by": "token", "token-key": facts.key_sha256.hex(), "wrapped-key": facts.wrapped.hex()}
    return {
        "closed-by": "passphrase",
        "memory-kib": str(facts.memory_kib),
        "passes": str(facts.passes),
        "lanes": str(facts.lanes),
        "salt": facts.salt.hex(),
    }


def _facts(values: dict[str, str]) -> PassphraseFacts | TokenFacts:
    if values["closed-by"] == "token":
        return TokenFacts(key_sha256=bytes.fromhex(values["token-key"]), wrapped=bytes.fromhex(values["wrapped-key"]))
    return PassphraseFacts(
        memory_kib=int(values["memory-kib"]),
        passes=int(values["passes"]),
        lanes=int(values["lanes"]),
        salt=bytes.fromhex(values["salt"]),
    )


def _values(head: bytes) -> dict[str, str]:
    lines = head.decode("ascii", "replace").split("\n")[1:]
    pairs = [line.partition(": ") for line in lines]
    values = {name: value for name, _colon, value in pairs}
    wanted = _FIELDS.get(values.get("closed-by", ""), ())
    named = tuple(name for name, _colon, _value in pairs)
    if not wanted or named != wanted or not all(map(_is_good, values, values.values())):
        raise malformed("the lines of a kit, in their order and within their bounds")
    return values


def _is_good(name: str, value: str) -> bool:
    if name in _COSTS:
        least, most = _COSTS[name]
        return re.fullmatch(r"[1-9][0-9]{0,8}", value) is not None and least <= int(value) <= most
    if name not in _HEXADECIMAL:
        return True  # closed-by selected the fields above
    digits = _HEXADECIMAL[name]
    good = re.fullmatch(r"([0-9a-f]{2})+", value) is not None
    return good and (len(value) == digits if digits else len(value) <= _MAX_WRAPPED_DIGITS)


def _decoded(rest: bytes) -> bytes:
    try:
        return b64decode(rest.replace(b"\n", b""), validate=True)
    except (binascii.Error, ValueError):
        raise malformed("base64 as the content of a kit") from None


# Encrypt and decrypt a kit: with a passphrase, to age recipients, or with a key in a PKCS#11 token.
#
# A kit for recipients is a file of age (`age -d` decrypts it); the other kits are files of `envelope`.

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


# A PKCS#11 token with the library `python-pkcs11`: decrypt the file key of a kit with the token's RSA key.


class Pkcs11Token:
    """An open session of a token; implements `Token`."""

    def __init__(self, session: Any) -> None:
        """Store ``session``, which the caller closes."""
        self._session = session

    def public_keys(self) -> tuple[bytes, ...]:
        """Return the public keys (PEM) of the token's RSA keys, to which a kit can be encrypted."""
        return tuple(
            key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            for _handle, key in self._keys()
        )

    def unwrap(self, facts: TokenFacts) -> SecretBytes:
        """Return the file key of a kit; raises KIT_KEY_WRONG without its RSA key, KIT_DAMAGED for an altered text."""
        found = [handle for handle, key in self._keys() if token_key_digest(key) == facts.key_sha256]
        if not found:
            raise KeyServiceError(
                f"expected the RSA key {facts.key_sha256.hex()} that this kit is encrypted to, "
                "the token does not have it",
                reason=Reason.KIT_KEY_WRONG,
            )
        try:
            file_key = found[0].decrypt(facts.wrapped, mechanism=pkcs11().Mechanism.RSA_PKCS_OAEP)
        except pkcs11_errors().PKCS11Error:
            file_key = b""
        if len(file_key) != FILE_KEY_BYTES:
            raise KeyServiceError(
                "expected a file key that the token decrypts, the kit was altered", reason=Reason.KIT_DAMAGED
            )
        return SecretBytes(file_key)

    def _keys(self) -> Iterator[tuple[Any, rsa.RSAPublicKey]]:
        library = pkcs11()
        wanted = {
            library.Attribute.CLASS: library.ObjectClass.PRIVATE_KEY,
            library.Attribute.KEY_TYPE: library.KeyType.RSA,
        }
        for handle in self._session.get_objects(wanted):
            modulus, exponent = (
                int.from_bytes(handle[name], "big")
                for name in (library.Attribute.MODULUS, library.Attribute.PUBLIC_EXPONENT)
            )
            yield handle, rsa.RSAPublicNumbers(exponent, modulus).public_key()


@contextmanager
def open_token(module: str | Path, *, pin: SecretBytes, token_label: str = "") -> Iterator[Pkcs11Token]:
    """Open the token of the PKCS#11 ``module`` (a shared library, by its absolute path) and close it at the end.

    An empty ``token_label`` selects the only token. Raises KIT_TOKEN_UNUSABLE: no module, no such token, several, a
    wrong or locked PIN, or a device that fails.
    """
    path = Path(module)
    if not path.is_absolute() or not path.is_file():
        raise _unusable(f"a PKCS#11 module at an absolute path, {path} is none")
    library, errors = pkcs11(), pkcs11_errors()
    chosen: dict[str, Any] = {"token_flags": library.TokenFlag.TOKEN_INITIALIZED}
    chosen |= {"token_label": token_label} if token_label else {}
    try:
        with library.lib(str(path)).get_token(**chosen).open(user_pin=pin.reveal().decode("ascii")) as session:
            yield Pkcs11Token(session)
    except errors.NoSuchToken:
        raise _unusable(f"a token {token_label or ''} behind {path}, found none".replace("  ", " ")) from None
    except errors.MultipleTokensReturned:
        raise _unusable(f"one token behind {path}, found several; name one") from None
    except (errors.PinIncorrect, errors.PinInvalid, errors.PinLenRange):
        raise _unusable("the PIN of the token, got another") from None
    except errors.PinLocked:
        raise _unusable("a PIN that is not locked; the token's security officer unlocks it") from None
    except errors.PKCS11Error as error:
        raise _unusable(f"a token that works behind {path}, got {type(error).__name__}") from None


def _unusable(expected: str) -> KeyServiceError:
    return KeyServiceError(f"expected {expected}", reason=Reason.KIT_TOKEN_UNUSABLE)
