# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CA certificates and keys as PEM: name them, split and join files, and make successors."""

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
    """A new key of one authority, in PEM.

    ``public`` is a CA certificate or a bare public key, ``private`` is the private key.
    """

    public: bytes
    private: bytes = field(repr=False)


def split(data: bytes) -> dict[str, bytes]:
    """Return the certificates or public keys of a PEM file by key name, in order.

    Raises AUTHORITY_UNUSABLE if there is none.
    """
    blocks = [match[0] + b"\n" for match in _BLOCK.finditer(data)]
    if not blocks:
        raise unusable("expected a certificate or a public key in PEM, found none")
    return {key_name(public_key(block)): block for block in blocks}


def join(names: Iterable[str], known: Mapping[str, bytes]) -> bytes:
    """Return one PEM file with the named certificates or keys in order.

    Raises AUTHORITY_UNUSABLE if one is unknown.
    """
    wanted = tuple(names)
    missing = [name for name in wanted if name not in known]
    if missing or not wanted:
        raise unusable(f"expected the public keys {', '.join(wanted) or '(none)'}, {', '.join(missing)} is unknown")
    return b"".join(known[name] for name in wanted)


def key_name(public: Any) -> str:
    """Return the name of a key: 16 digits of the hash of its SubjectPublicKeyInfo."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:_DIGITS]


def public_key(block: bytes) -> Any:
    """Return the public key of one PEM block (certificate or key); raises AUTHORITY_UNUSABLE."""
    try:
        if _CERTIFICATE in block:
            return x509.load_pem_x509_certificate(block).public_key()
        return serialization.load_pem_public_key(block)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise unusable("expected a certificate or a public key in PEM, found something else") from None


def private_name(data: bytes) -> str:
    """Return the name of a private key in PEM.

    Raises AUTHORITY_UNUSABLE with a message that never quotes the key.
    """
    return key_name(_private(data).public_key())


def signer_of(certificate: bytes, authorities: Mapping[str, bytes]) -> str:
    """Return the name of the CA that signed the first certificate of a PEM, or "" if none did."""
    leaf = _certificate(certificate)
    for name, pem in authorities.items():
        try:
            leaf.verify_directly_issued_by(_certificate(pem))
        except (ValueError, TypeError, exceptions.InvalidSignature):
            continue
        return name
    return ""


def require_pair(successor: Successor, *, certified: bool) -> str:
    """Return the key name of a successor; raises AUTHORITY_UNUSABLE.

    The public key must belong to the private key. ``certified`` requires a self-signed certificate, else a bare key.
    """
    found = split(successor.public)
    is_certificate = _CERTIFICATE in successor.public
    if list(found) != [private_name(successor.private)] or is_certificate != certified:
        wanted = "a certificate" if certified else "a public key"
        raise unusable(f"expected {wanted} and the private key that belongs to it, got something else")
    (name,) = found
    key = public_key(successor.public)
    if not is_accepted(KeyUse.CLUSTER_AUTHORITY, key):
        raise unusable(f"expected a key of {KeyUse.CLUSTER_AUTHORITY.wanted}, got {kind_of(key)}")
    if certified and signer_of(successor.public, found) != name:
        raise unusable("expected a self-signed CA certificate, got another certificate")
    return name


def make_successor(before: bytes, *, now: datetime) -> Successor:
    """Return a new key of the same kind as the first key in ``before``.

    If ``before`` is a certificate, the successor has a certificate too. The name of the key is added to a CA's subject,
    so that the subjects of the old and the new CA differ.
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
    """Return the subject with the key's name as suffix of the common name; a previous key name is replaced."""
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
    """Return the error AUTHORITY_UNUSABLE with this message."""
    return KubeadmError(message, reason=Reason.AUTHORITY_UNUSABLE)


# Successors as bytes. They leave a control plane only inside a box that is sealed to another control plane.


def render_successors(successors: Mapping[str, Successor]) -> bytes:
    """Return successors by authority as bytes. The bytes hold private keys: the caller must seal them."""
    pairs = {name: [one.public.decode("ascii"), one.private.decode("ascii")] for name, one in successors.items()}
    return json.dumps(pairs).encode("ascii")


def parse_successors(data: bytes) -> dict[str, Successor]:
    """Return successors by authority as `render_successors` wrote them; raises AUTHORITY_UNUSABLE.

    `AuthorityFiles.stage` checks that the public and the private key of each successor belong together.
    """
    try:
        return {
            str(name): Successor(public=public.encode("ascii"), private=private.encode("ascii"))
            for name, (public, private) in load_json(data).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise unusable("expected successors by authority, got something else") from None  # the cause may quote a key
