# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify git's SSH signatures of commits: bytes in, a signed commit or a refusal out.

The form is OpenSSH's (PROTOCOL.sshsig). Git signs the commit object without its header ``gpgsig``. Only pinned keys
count: no key ring, no file, no other program and no clock has an influence.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._deps.crypto import asymmetric_utils, ec, ed25519, exceptions, hashes, serialization
from ..errors import Refusal
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAGIC = b"SSHSIG"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_NAMESPACE = b"git"
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_HEADER = b"gpgsig"
_TREE = re.compile(rb"tree ([0-9a-f]{40})\n")
_ED25519, _ECDSA = b"ssh-ed25519", b"ecdsa-sha2-nistp256"
_KEY_LINE = re.compile(r"(ssh-ed25519|ecdsa-sha2-nistp256) ([A-Za-z0-9+/=]+)( [^\x00-\x1f\x7f]*)?")
_WORD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """A pinned key: ``blob`` in SSH's wire form, ``name`` the comment after it."""

    blob: bytes
    name: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint as of ssh-keygen -l, for example ``SHA256:tQ…``."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCommit:
    """A commit that a pinned key signed; ``commit`` and ``tree`` are object ids (40 hex digits)."""

    commit: str
    tree: str
    signer: Signer


def parse_signer(line: Any) -> Signer:
    """Return the key of ``line``, as in a .pub file; raises `ValueError` if it cannot be pinned."""
    match = _KEY_LINE.fullmatch(line) if isinstance(line, str) else None
    if match is None:
        raise ValueError(f"expected a public key of ssh-ed25519 or ecdsa-sha2-nistp256, got {line!r:.60}")
    try:
        blob = base64.b64decode(match[2], validate=True)
        _public_key(blob)
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise ValueError(f"expected a public key of {match[1]}, got {line!r:.60}") from error
    return Signer(blob=blob, name=(match[3] or "").strip())


def object_id(kind: str, content: bytes) -> str:
    """Return git's id of an object."""
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def verify_commit(content: bytes, *, commit: str, signers: Iterable[Signer]) -> SignedCommit:
    """Return the commit ``commit`` with the object ``content`` after its signature was verified.

    1. The object has this id (SOURCE_OBJECT_BROKEN). 2. It has one SSH signature (SOURCE_UNSIGNED). 3. The signature
    parses and was made for git (SOURCE_SIGNATURE). 4. Its key is pinned (SOURCE_SIGNER_UNKNOWN). 5. It is valid for the
    rest of the object (SOURCE_SIGNATURE). 6. The tree is read from the signed bytes (SOURCE_OBJECT_BROKEN). The caller
    must check that this commit is not older than an earlier one.
    """
    if not hmac.compare_digest(object_id("commit", content), commit):  # 1
        raise Refusal(f"expected the content of {commit}, got another", reason=Reason.SOURCE_OBJECT_BROKEN)
    signed, armour = _split(content, commit)  # 2
    signature = _SshSignature.parse(armour)  # 3
    signer = next((one for one in signers if hmac.compare_digest(one.blob, signature.key)), None)  # 4
    if signer is None:
        raise Refusal(
            f"expected commit {commit} to be signed by a pinned key, it is signed by "
            f"{Signer(blob=signature.key, name='').fingerprint}",
            reason=Reason.SOURCE_SIGNER_UNKNOWN,
        )
    signature.verify(signed)  # 5
    tree = _TREE.match(signed)  # 6
    if tree is None:
        raise Refusal(f"expected commit {commit} to begin with its tree", reason=Reason.SOURCE_OBJECT_BROKEN)
    return SignedCommit(commit=commit, tree=tree[1].decode(), signer=signer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SshSignature:
    key: bytes
    hash_name: bytes
    reserved: bytes
    algorithm: bytes
    value: bytes

    @classmethod
    def parse(cls, armour: bytes) -> _SshSignature:
        blob = _unarmoured(armour)
        if blob[: len(_MAGIC)] != _MAGIC or blob[len(_MAGIC) : len(_MAGIC) + _WORD] != (1).to_bytes(_WORD, "big"):
            raise _malformed("version 1 of SSHSIG")
        key, namespace, reserved, hash_name, inner = _strings(blob[len(_MAGIC) + _WORD :], 5)
        if namespace != _NAMESPACE:
            raise _malformed(f"a signature for {_NAMESPACE.decode()}, got one for {namespace[:32]!r}")
        if hash_name not in _HASHES:
            raise _malformed(f"sha256 or sha512, got {hash_name[:32]!r}")
        algorithm, value = _strings(inner, 2)
        return cls(key=key, hash_name=hash_name, reserved=reserved, algorithm=algorithm, value=value)

    def verify(self, message: bytes) -> None:
        """Raise SOURCE_SIGNATURE unless this is the signature of ``message``."""
        digest = _HASHES[self.hash_name](message).digest()
        signed = _MAGIC + b"".join(_string(part) for part in (_NAMESPACE, self.reserved, self.hash_name, digest))
        key = _public_key(self.key)
        try:
            if isinstance(key, ed25519.Ed25519PublicKey) and self.algorithm == _ED25519:
                key.verify(self.value, signed)
            elif isinstance(key, ec.EllipticCurvePublicKey) and self.algorithm == _ECDSA:
                r, s = (int.from_bytes(part, "big", signed=True) for part in _strings(self.value, 2))
                if min(r, s) < 0:
                    raise _malformed("two positive numbers")
                key.verify(asymmetric_utils.encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
            else:
                raise _malformed(f"a signature of the key's own kind, got {self.algorithm[:32]!r}")
        except exceptions.InvalidSignature as error:
            raise _malformed("one that is valid for the commit, got another") from error


def _split(content: bytes, commit: str) -> tuple[bytes, bytes]:
    """Return the signed bytes and the armoured signature."""
    head, blank, message = content.partition(b"\n\n")
    headers: list[list[bytes]] = []
    for line in head.split(b"\n"):
        if line.startswith(b" ") and headers:
            headers[-1].append(line)
        else:
            headers.append([line])
    found = [lines for lines in headers if lines[0].partition(b" ")[0] == _HEADER]
    if len(found) != 1 or not found[0][0].endswith(_BEGIN.encode()):
        raise Refusal(f"expected commit {commit} with one SSH signature, found none", reason=Reason.SOURCE_UNSIGNED)
    armour = b"\n".join([found[0][0][len(_HEADER) + 1 :], *(line[1:] for line in found[0][1:])])
    kept = b"\n".join(line for lines in headers if lines is not found[0] for line in lines)
    return kept + blank + message, armour


def _unarmoured(armour: bytes) -> bytes:
    lines = armour.decode("ascii", errors="replace").split("\n")
    while lines and not lines[-1]:
        lines.pop()
    if lines[0] != _BEGIN or lines[-1] != _END:
        raise _malformed("an armoured signature")
    try:
        return base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("base64") from error


def _strings(data: bytes, count: int) -> list[bytes]:
    """Return exactly ``count`` length-prefixed strings; data after them is refused."""
    found, at = [], 0
    for _unused in range(count):
        size = int.from_bytes(data[at : at + _WORD], "big")
        part = data[at + _WORD : at + _WORD + size]
        if len(data) < at + _WORD or len(part) != size:
            raise _malformed("complete fields")
        found.append(part)
        at += _WORD + size
    if at != len(data):
        raise _malformed("no data after its fields")
    return found


def _string(part: bytes) -> bytes:
    return len(part).to_bytes(_WORD, "big") + part


def _public_key(blob: bytes) -> Any:
    kind = blob[_WORD : _WORD + int.from_bytes(blob[:_WORD], "big")]
    key = serialization.load_ssh_public_key(kind + b" " + base64.b64encode(blob))
    if not is_accepted(KeyUse.SOURCE, key):
        raise ValueError(f"expected a key of {KeyUse.SOURCE.wanted}, got {kind_of(key)}")
    return key


def _malformed(expected: str) -> Refusal:
    return Refusal(f"expected a signature: {expected}", reason=Reason.SOURCE_SIGNATURE)
