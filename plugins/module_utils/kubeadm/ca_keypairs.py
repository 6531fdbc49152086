# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Halves of keys as PEM: named, told apart in a file that holds several, and made anew as the one before was."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, exceptions, hashes, rsa, serialization, x509
from ..core.documents import load_json
from ..errors import KubeadmError
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


_BLOCK = re.compile(rb"-----BEGIN (?P<kind>[A-Z ]+)-----\n.*?\n-----END (?P=kind)-----", re.DOTALL)
_CERTIFICATE = b"CERTIFICATE"
_DIGITS = 16
_LIFE = timedelta(days=3650)
_CLOCK_SKEW = timedelta(minutes=5)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A new key of one authority: its public half (certificate of a CA, else a bare key) and its private half, PEM."""

    public: bytes
    private: bytes = field(repr=False)


def split(data: bytes) -> dict[str, bytes]:
    """Return the public halves in a file by name, in its order; raises AUTHORITY_UNUSABLE where there is none."""
    blocks = [match[0] + b"\n" for match in _BLOCK.finditer(data)]
    if not blocks:
        raise unusable("expected a certificate or a public key in PEM, found none")
    return {key_name(public_key(block)): block for block in blocks}


def join(names: Iterable[str], known: Mapping[str, bytes]) -> bytes:
    """Return one file with these public halves in this order; raises AUTHORITY_UNUSABLE where one is not known."""
    wanted = tuple(names)
    missing = [name for name in wanted if name not in known]
    if missing or not wanted:
        raise unusable(f"expected the public halves of {', '.join(wanted) or 'any'}, {', '.join(missing)} is not known")
    return b"".join(known[name] for name in wanted)


def key_name(public: Any) -> str:
    """Return the name of a key: 16 digits of the hash of its SubjectPublicKeyInfo."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:_DIGITS]


def public_key(block: bytes) -> Any:
    """Return the key in one PEM block; raises AUTHORITY_UNUSABLE."""
    try:
        if _CERTIFICATE in block:
            return x509.load_pem_x509_certificate(block).public_key()
        return serialization.load_pem_public_key(block)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise unusable("expected a certificate or a public key in PEM, found something else") from None


def private_name(data: bytes) -> str:
    """Return the name of a private key in PEM; raises AUTHORITY_UNUSABLE, whose message holds nothing of it."""
    return key_name(_private(data).public_key())


def signer_of(certificate: bytes, authorities: Mapping[str, bytes]) -> str:
    """Return the name of the CA among ``authorities`` that signed the first certificate of a PEM, empty for none."""
    leaf = _certificate(certificate)
    for name, pem in authorities.items():
        try:
            leaf.verify_directly_issued_by(_certificate(pem))
        except (ValueError, TypeError, exceptions.InvalidSignature):
            continue
        return name
    return ""


def require_pair(successor: Successor, *, certified: bool) -> str:
    """Return the name of a successor whose halves belong together, with a certificate of its own where ``certified``.

    Raises AUTHORITY_UNUSABLE.
    """
    halves = split(successor.public)
    is_certificate = _CERTIFICATE in successor.public
    if list(halves) != [private_name(successor.private)] or is_certificate != certified:
        raise unusable("expected the two halves of one key, got others")
    (name,) = halves
    key = public_key(successor.public)
    if not is_accepted(KeyUse.CLUSTER_AUTHORITY, key):
        raise unusable(f"expected a key of {KeyUse.CLUSTER_AUTHORITY.wanted}, got {kind_of(key)}")
    if certified and signer_of(successor.public, halves) != name:
        raise unusable("expected a CA that signed for itself, got another certificate")
    return name


def make_successor(before: bytes, *, now: datetime) -> Successor:
    """Return a new key of the kind of the first one in ``before``, with a certificate where that has one.

    A CA's subject gets the name of its key, so that the two are told apart wherever one is shown.
    """
    (block, *_others) = split(before).values()
    key = _make_key(public_key(block))
    private = key.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    if _CERTIFICATE not in block:
        public = key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return Successor(public=public, private=private)
    made = _self_signed(key, _certificate(block), now=now)
    return Successor(public=made.public_bytes(_PEM), private=private)


def _make_key(like: Any) -> Any:
    if isinstance(like, rsa.RSAPublicKey):
        return rsa.generate_private_key(65537, like.key_size)
    if isinstance(like, ec.EllipticCurvePublicKey):
        return ec.generate_private_key(like.curve)
    raise unusable(f"expected an RSA or an EC key, found {type(like).__name__}")


def _self_signed(key: Any, before: Any, *, now: datetime) -> Any:
    name = _renamed(before.subject, key_name(key.public_key()))
    usages = dict.fromkeys(_USAGES, False) | {
        "digital_signature": True,
        "key_cert_sign": True,
        "key_encipherment": True,
    }
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usages), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _renamed(subject: Any, name: str) -> Any:
    """Return the subject with the key's name at the end of its common name, in the place of the one before."""
    common = x509.NameOID.COMMON_NAME
    attributes = [
        x509.NameAttribute(one.oid, f"{re.sub(r'-[0-9a-f]{16}$', '', str(one.value))}-{name}")
        if one.oid == common
        else one
        for one in subject
    ]
    return x509.Name(attributes)


def _certificate(pem: bytes) -> Any:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise unusable("expected a certificate in PEM, found something else") from None


def _private(data: bytes) -> Any:
    try:
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise unusable("expected a private key in PEM, found something else") from None


def unusable(message: str) -> KubeadmError:
    """Return the error of a file that is not what it should be."""
    return KubeadmError(message, reason=Reason.AUTHORITY_UNUSABLE)


# Successors as bytes, which go from one control plane to another inside of a sealed box and nowhere else.


def render_successors(successors: Mapping[str, Successor]) -> bytes:
    """Return successors by authority as bytes; only ever to be sealed."""
    halves = {name: [one.public.decode("ascii"), one.private.decode("ascii")] for name, one in successors.items()}
    return json.dumps(halves).encode("ascii")


def parse_successors(data: bytes) -> dict[str, Successor]:
    """Return successors by authority as `render_successors` wrote them; raises AUTHORITY_UNUSABLE.

    Whether the halves of each are those of one key is for whoever takes them (`AuthorityFiles.stage`).
    """
    try:
        return {
            str(name): Successor(public=public.encode("ascii"), private=private.encode("ascii"))
            for name, (public, private) in load_json(data).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise unusable("expected successors by authority, got something else") from None  # the cause may hold a key
