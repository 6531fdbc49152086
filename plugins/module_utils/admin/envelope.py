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
from dataclasses import dataclass, field

from .._deps.crypto import aead, exceptions, hashes, hkdf
from ..errors import KeyServiceError
from ..keyservice.master import SecretBytes
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from .kit import FORMAT, malformed, wrong_format

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
