# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify the certificate of an endorsement key: a further check if roots are configured, no substitute for enrolment.

A chain proves that a TPM of some maker holds the key. Only the identity says which machine that is.
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
"""Characters with a meaning in YAML strings, templates or comments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedKey:
    """An endorsement key whose certificate chains to a configured root: the chip and the root."""

    tpm: TpmDescription
    root: x509.Certificate

    @property
    def label(self) -> str:
        """Return maker, model and root on one line of at most 160 characters, without characters of `_UNSAFE`."""
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
    """Return the certified key after these steps; None without ``roots``, since there is nothing to check.

    1. The machine sent a certificate (EK_CERTIFICATE_MISSING).
    2. All certificates parse strictly and are bounded (EK_CERTIFICATE_MALFORMED).
    3. The first certificate is for this key (EK_CERTIFICATE_MISMATCH); an RSA key marked for RSAES-OAEP counts as the
       same key.
    4. It meets the profile of the TCG: no CA, a key for decryption, the purpose of endorsement keys, and the TPM's
       manufacturer, model and version (EK_CERTIFICATE_PROFILE).
    5. It is valid now (EK_CERTIFICATE_EXPIRED).
    6. An issuer that the machine sent or the store holds signed it, with SHA-2 or SHA-3 of at least 256 bits
       (EK_CERTIFICATE_UNTRUSTED).
    7. That issuer chains to a root. All of the chain are CAs, valid now, within the path lengths, and with an accepted
       kind of key; the library requires SHA-2 for their signatures (EK_CERTIFICATE_UNTRUSTED).

    ``certificates``: DER, the key's own first, then its issuers' in any order, none of which is trusted.
    ``intermediates``: issuers from files; nothing is downloaded. The caller decides which roots to trust.
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
    """Return the certificate in ``data``; its key is compared before its profile is checked."""
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
    raise _untrusted(f"no issuer that signed it, its issuer is {leaf.issuer.rfc4514_string()[:_MAX_NAME]}")


def _chain(
    issuer: x509.Certificate, issuers: Sequence[x509.Certificate], *, roots: Sequence[x509.Certificate], now: datetime
) -> Sequence[x509.Certificate]:
    # EK certificates are not used in TLS, so the extensions of the CAs are checked for issuing only. The library starts
    # at the issuer of the endorsement certificate: the certificate itself was checked above, since its key may have an
    # algorithm (RSAES-OAEP) that no TLS stack knows.
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
    """Check the path length of each CA (RFC 5280, 4.2.1.9), since the library began above the leaf."""
    for below, authority in enumerate(chain):
        limit = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length
        if limit is not None and below > limit:
            raise _untrusted(f"an authority with {below} below it that allows {limit}")


def _require_hash(leaf: x509.Certificate) -> None:
    used = leaf.signature_hash_algorithm
    if used is None or used.name not in _HASHES:
        raise _untrusted(f"one signed with {used.name if used else 'no hash'}")


def _require_authority_kind(authority: x509.Certificate) -> None:
    """Raise EK_CERTIFICATE_UNTRUSTED for a CA whose key is of a kind that is not accepted."""
    key = authority.public_key()
    if not is_accepted(KeyUse.ENDORSEMENT_AUTHORITY, key):
        raise _untrusted(f"an authority with a key of {kind_of(key)}, not {KeyUse.ENDORSEMENT_AUTHORITY.wanted}")


def _untrusted(got: str) -> Refusal:
    return Refusal(
        f"expected an endorsement certificate that chains to a configured root, got {got}",
        reason=Reason.EK_CERTIFICATE_UNTRUSTED,
    )
