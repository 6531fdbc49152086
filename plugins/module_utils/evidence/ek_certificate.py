# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate of an endorsement key: a further check where roots are configured, never a substitute for enrolment.

A chain says that some maker's TPM holds the key; which machine that is says the identity alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._deps.crypto import exceptions, verification, x509
from ..errors import Refusal
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason
from .ek_profile import EkCertificate, TpmDescription, parse_certificate, parse_ek_certificate, spki_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..tpm.structures import Public

_MAX_CHAIN_DEPTH = 8
_MAX_NAME = 96
_HASHES = frozenset({"sha256", "sha384", "sha512", "sha3-256", "sha3-384", "sha3-512"})
_UNSAFE = '"\\{}%#'
"""What a YAML string, a template or a comment would mind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedKey:
    """An endorsement key whose certificate chained to a configured root: which chip, and which root."""

    tpm: TpmDescription
    root: x509.Certificate

    @property
    def label(self) -> str:
        """Return maker, model and root on one line, at most 160 characters, without what YAML or templates mind."""
        name = self.root.subject.rfc4514_string()
        kept = (one if one.isascii() and one.isprintable() and one not in _UNSAFE else "?" for one in name[:_MAX_NAME])
        return f"{self.tpm.label}, root {''.join(kept)}"


def verify_ek_certificate(
    ek: Public,
    certificates: Sequence[bytes],
    *,
    roots: Sequence[x509.Certificate],
    intermediates: Sequence[x509.Certificate] = (),
    now: datetime,
) -> CertifiedKey | None:
    """Check the chain of an endorsement key, in these steps; without roots there is nothing to check, and None.

    1. There is a certificate (EK_CERTIFICATE_MISSING).
    2. All of them parse, bounded and strict (EK_CERTIFICATE_MALFORMED).
    3. The first one is for this very key (EK_CERTIFICATE_MISMATCH); a key marked for RSAES-OAEP alone is the same key.
    4. It has what the profile of the TCG demands: no authority, a key that decrypts, the purpose of endorsement keys,
       and the TPM's manufacturer, model and version (EK_CERTIFICATE_PROFILE).
    5. It is valid now (EK_CERTIFICATE_EXPIRED).
    6. It was signed by an issuer that came along, or lies in the store, with a hash of SHA-2 or SHA-3 of at least 256
       bits (EK_CERTIFICATE_UNTRUSTED).
    7. That issuer chains to a root: authorities all of them, valid now, none deeper than its issuers allow, with an
       accepted kind of key; the library demands SHA-2 of their signatures (EK_CERTIFICATE_UNTRUSTED).

    ``certificates``: DER, the key's own first, then its issuers' in any order, which are believed for nothing.
    ``intermediates``: issuers from files; nothing is fetched. The caller owes the decision which roots to trust.
    """
    if not roots:
        return None
    if not certificates:  # 1
        raise Refusal("expected an endorsement certificate, got none", reason=Reason.EK_CERTIFICATE_MISSING)
    issuers = [*(parse_certificate(data) for data in certificates[1:]), *intermediates]  # 2
    leaf = _certificate_of(ek, certificates[0])  # 2, 3, 4
    _verify_dates(leaf.certificate, now)  # 5
    issuer = _issuer_of(leaf.certificate, [*roots, *issuers])  # 6
    _require_hash(leaf.certificate)  # 6
    chain = _chain(issuer, issuers, roots=roots, now=now)  # 7
    for authority in chain:
        _require_authority_kind(authority)  # 7
    return CertifiedKey(tpm=leaf.tpm, root=chain[-1])


def _certificate_of(ek: Public, data: bytes) -> EkCertificate:
    """Return the certificate in ``data``; whose key it is comes before what it is for."""
    certified = spki_of(parse_certificate(data))
    if certified != ek.spki():
        raise Refusal(
            f"expected a certificate for the endorsement key {ek.spki_sha256()}, got one for another key",
            reason=Reason.EK_CERTIFICATE_MISMATCH,
        )
    return parse_ek_certificate(data)


def _verify_dates(certificate: x509.Certificate, now: datetime) -> None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= now <= last:
        raise Refusal(
            f"expected an endorsement certificate that is valid at {now:%Y-%m-%d}, got one for {first:%Y-%m-%d} to "
            f"{last:%Y-%m-%d}",
            reason=Reason.EK_CERTIFICATE_EXPIRED,
        )


def _issuer_of(leaf: x509.Certificate, candidates: Sequence[x509.Certificate]) -> x509.Certificate:
    for candidate in candidates:
        try:
            leaf.verify_directly_issued_by(candidate)
        except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
            continue  # another name, another key, or a key that signs nothing: the next candidate decides
        return candidate
    raise _untrusted(f"nobody that signed it, of issuer {leaf.issuer.rfc4514_string()[:_MAX_NAME]}")


def _chain(
    issuer: x509.Certificate, issuers: Sequence[x509.Certificate], *, roots: Sequence[x509.Certificate], now: datetime
) -> Sequence[x509.Certificate]:
    # EK certificates serve neither servers nor clients of TLS, so nothing but issuing is asked of the authorities'
    # extensions. The library starts at the endorsement certificate's issuer: the certificate itself was checked
    # above, since its key may have a name (RSAES-OAEP) that no TLS stack knows.
    agnostic = verification.Criticality.AGNOSTIC
    issuing = (
        verification.ExtensionPolicy.permit_all()
        .require_present(x509.BasicConstraints, agnostic, _require_authority)
        .may_be_present(x509.KeyUsage, agnostic, _require_signing)
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(roots)))
        .time(now)
        .max_chain_depth(_MAX_CHAIN_DEPTH)
        .extension_policies(ca_policy=issuing, ee_policy=issuing)
        .build_client_verifier()
    )
    try:
        chain: Sequence[x509.Certificate] = verifier.verify(issuer, list(issuers)).chain
    except verification.VerificationError as error:
        raise _untrusted(f"{error}"[:200]) from error
    _require_lengths(chain)
    return chain


def _require_authority(
    _policy: verification.Policy, _certificate: x509.Certificate, constraints: x509.BasicConstraints
) -> None:
    if not constraints.ca:
        raise ValueError("an issuer that is no authority")


def _require_signing(_policy: verification.Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("an issuer that may not sign certificates")


def _require_lengths(chain: Sequence[x509.Certificate]) -> None:
    """Count the authorities below each one (RFC 5280, 4.2.1.9), since the library began above the leaf."""
    for below, authority in enumerate(chain):
        limit = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length
        if limit is not None and below > limit:
            raise _untrusted(f"an authority with {below} below it that allows {limit}")


def _require_hash(leaf: x509.Certificate) -> None:
    used = leaf.signature_hash_algorithm
    if used is None or used.name not in _HASHES:
        raise _untrusted(f"one signed with {used.name if used else 'no hash'}")


def _require_authority_kind(authority: x509.Certificate) -> None:
    """Raise EK_CERTIFICATE_UNTRUSTED for an authority whose key is weak; one of X.509 1 or 2 has no constraints."""
    key = authority.public_key()
    if not is_accepted(KeyUse.ENDORSEMENT_AUTHORITY, key):
        raise _untrusted(f"an authority with a key of {kind_of(key)}, not {KeyUse.ENDORSEMENT_AUTHORITY.wanted}")


def _untrusted(got: str) -> Refusal:
    return Refusal(
        f"expected an endorsement certificate that chains to a configured root, got {got}",
        reason=Reason.EK_CERTIFICATE_UNTRUSTED,
    )
