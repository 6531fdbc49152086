# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's proof: a certificate of the pinned join CA, and a signature by its key over one exchange.

The proof travels inside the request, so the process that holds the TPM verifies it, not only the process that
terminates TLS (docs/adr/0016). The signature covers the binding B, which includes the TLS channel. So it is valid for
one connection only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, exceptions, hashes, serialization, unreadable, x509
from ..core.documents import load_json
from ..errors import PolicyError, Refusal
from ..key_kinds import KeyUse, is_accepted
from ..keyservice.ca import load_signing_key
from ..policy.cluster import POLICY_KIND, POLICY_NAME
from ..policy.manifest import API_VERSION, Manifests, parse_objects, render_document, render_identity, render_profile
from ..policy.signature import verify_policy
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.binding import Purpose, label, length_prefixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ..keyservice.ca import JoinCa
    from ..policy.identity import NodeIdentity
    from ..policy.profile import MeasurementProfile
    from ..transport.pins import JoinCaPins


# The policy that comes with an init request: packed by the admin's side, verified by the machine (docs/adr/0041).


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtPolicy:
    """A policy of the site with a verified signature, and the profiles and identities that come with it."""

    generation: int
    spec: Mapping[str, Any]
    manifests: Manifests

    @classmethod
    def verified(cls, policy: bytes, objects: bytes, *, public_key: bytes, cluster_id: bytes) -> BroughtPolicy:
        """Return the verified content of the two policy fields of a request.

        1. Both are JSON, the policy an object and the objects a list. MANIFEST_INVALID
        2. The site's key (PEM) signed exactly this policy, for this cluster: `verify_policy`, which the key service
           calls as well. MANIFEST_INVALID, POLICY_KEY_UNUSABLE, POLICY_SIGNATURE
        3. The objects are profiles and identities without unknown fields. MANIFEST_INVALID

        The key service checks later that the policy is not older than a known one. Whether a profile is in the policy
        is checked where a machine is judged by it.
        """
        document, items = _loaded(policy, dict), _loaded(objects, list)  # 1
        found = verify_policy(document, public_key=public_key, cluster_id=cluster_id)  # 2
        places = ((f"policy_objects[{number}]", one) for number, one in enumerate(items))
        return cls(generation=found.generation, spec=document["spec"], manifests=parse_objects(places))  # 3

    def document(self) -> str:
        """Return the signed policy as YAML, with verified content only."""
        return render_document(_policy_manifest(self.spec))

    def objects(self) -> str:
        """Return all objects as one YAML stream to apply, the policy last, with parsed content only."""
        manifests = [*map(render_profile, self.manifests.profiles), *map(render_identity, self.manifests.identities)]
        return "".join(map(render_document, manifests)) + self.document()


def pack_policy(
    document: Mapping[str, Any], *, profiles: Iterable[MeasurementProfile], identities: Iterable[NodeIdentity]
) -> tuple[bytes, bytes]:
    """Return the two fields of a request for a signed policy: the policy, and the objects that are applied with it."""
    objects = [*map(render_profile, profiles), *map(render_identity, identities)]
    return _dumped(_policy_manifest(document["spec"])), _dumped(objects)


def _policy_manifest(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": POLICY_KIND, "metadata": {"name": POLICY_NAME}, "spec": dict(spec)}


def _dumped(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _loaded(data: bytes, kind: type) -> Any:
    try:
        found = load_json(data)
    except ValueError as error:
        raise _no_policy("JSON, got none") from error
    if not isinstance(found, kind):
        raise _no_policy(f"a {kind.__name__} in JSON, got another value")
    return found


def _no_policy(expected_and_got: str) -> PolicyError:
    return PolicyError(f"expected the policy of the request as {expected_and_got}", reason=Reason.MANIFEST_INVALID)


_LIFE = timedelta(hours=24)
_CLOCK_SKEW = timedelta(hours=2)
_PROOF = "attested.v1.AdminProof"
_MAX_PROOF_BYTES = 4096
_ID_IN_NAME = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminKey:
    """An admin's key for one init (P-256) and its certificate (DER)."""

    certificate: bytes
    key: ec.EllipticCurvePrivateKey = field(repr=False)


def admin_name(cluster_id: bytes) -> str:
    """Return the DNS name in the certificate of an admin of this cluster, ``admin.<32 hex>.attested``."""
    return f"admin.{cluster_id.hex()[:_ID_IN_NAME]}.attested"


def make_admin_key(*, ca: JoinCa, cluster_id: bytes, now: datetime) -> AdminKey:
    """Return a new key and its client certificate, valid for a day; raises `SiteError` SITE_SECRET_MALFORMED."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(ca.certificate).subject
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "attested admin")]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(admin_name(cluster_id))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(load_signing_key(ca), None)
    )
    return AdminKey(certificate=certificate.public_bytes(serialization.Encoding.DER), key=key)


def prove_admin(admin: AdminKey, *, binding: bytes, request: bytes, purpose: Purpose = Purpose.INIT) -> bytes:
    """Return the serialised ``attested.v1.AdminProof`` for the bytes of one request on one exchange (B, 32 bytes)."""
    signature = admin.key.sign(_signed(purpose, binding, request), ec.ECDSA(hashes.SHA256()))
    message = message_class(_PROOF)(certificate=admin.certificate, signature=signature)
    return bytes(message.SerializeToString())


def verify_admin(
    proof: bytes,
    *,
    pins: JoinCaPins,
    cluster_id: bytes,
    binding: bytes,
    request: bytes,
    now: datetime,
    purpose: Purpose = Purpose.INIT,
) -> str:
    """Return the serial number (hex) of the admin's certificate; raises `Refusal`.

    1. It is a proof with one certificate. MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, ADMIN_CERTIFICATE_MALFORMED
    2. A pinned join CA has signed the certificate. ADMIN_CERTIFICATE_UNTRUSTED
    3. It is a client certificate, not a CA, and its only name is that of this cluster's admin.
       ADMIN_CERTIFICATE_UNTRUSTED
    4. ``now`` is within its validity period. ADMIN_CERTIFICATE_EXPIRED
    5. Its key has signed this request on this exchange, for this purpose. ADMIN_SIGNATURE
    """
    message = parse(_PROOF, proof, limit=_MAX_PROOF_BYTES)  # 1
    leaf, key = _parsed(message.certificate)
    _require_issuer(leaf, pins)  # 2
    _require_admin(leaf, admin_name(cluster_id))  # 3
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:  # 4
        raise Refusal(
            f"expected a certificate that is good at {now:%Y-%m-%dT%H:%M:%SZ} by this machine's clock, got one "
            f"from {leaf.not_valid_before_utc} to {leaf.not_valid_after_utc}",
            reason=Reason.ADMIN_CERTIFICATE_EXPIRED,
        )
    try:  # 5
        key.verify(message.signature, _signed(purpose, binding, request), ec.ECDSA(hashes.SHA256()))
    except exceptions.InvalidSignature as error:
        raise Refusal(
            "expected a signature by the admin's key over this request on this exchange, got another",
            reason=Reason.ADMIN_SIGNATURE,
        ) from error
    return f"{leaf.serial_number:x}"


def _signed(purpose: Purpose, binding: bytes, request: bytes) -> bytes:
    return length_prefixed(label(f"{purpose.value}/admin"), binding, hashlib.sha256(request).digest())


def _parsed(der: bytes) -> tuple[x509.Certificate, ec.EllipticCurvePublicKey]:
    try:
        leaf = x509.load_der_x509_certificate(der)
        key = leaf.public_key()
    except unreadable() as error:
        raise _malformed() from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_accepted(KeyUse.ADMIN_PROOF, key):
        raise _malformed()
    return leaf, key


def _require_issuer(leaf: x509.Certificate, pins: JoinCaPins) -> None:
    for pin in pins.certificates:
        try:
            leaf.verify_directly_issued_by(pin)
        except (ValueError, TypeError, exceptions.InvalidSignature):
            continue
        return
    raise _untrusted("one of another issuer")


def _require_admin(leaf: x509.Certificate, expected: str) -> None:
    try:
        names = list(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        usages = list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
    except unreadable(x509.ExtensionNotFound) as error:
        raise _untrusted("one without name, purpose or constraints") from error
    if constraints.ca or usages != [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH] or names != [x509.DNSName(expected)]:
        raise _untrusted("one for something else")


def _malformed() -> Refusal:
    return Refusal("expected a P-256 certificate in DER, got none", reason=Reason.ADMIN_CERTIFICATE_MALFORMED)


def _untrusted(got: str) -> Refusal:
    return Refusal(
        f"expected a certificate of the pinned join CA for an admin of this cluster, got {got}",
        reason=Reason.ADMIN_CERTIFICATE_UNTRUSTED,
    )
