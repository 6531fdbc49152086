# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate of an endorsement key: a further check where roots are configured, never a substitute for enrolment.

A chain says that some maker's TPM holds the key; which machine that is says the identity alone (design 6.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._deps.crypto import exceptions, serialization, verification, x509
from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..tpm import Public

_MAX_CHAIN_DEPTH = 8


def verify_ek_certificate(
    ek: Public, certificates: Sequence[bytes], *, roots: Sequence[x509.Certificate], now: datetime
) -> None:
    """Check the chain of an endorsement key, in these steps; without roots there is nothing to check.

    1. There is a certificate (EK_CERTIFICATE_MISSING).
    2. All of them parse (EK_CERTIFICATE_MALFORMED).
    3. The first one is for this very key (EK_CERTIFICATE_MISMATCH).
    4. It chains through the others to a root, every one valid now (EK_CERTIFICATE_UNTRUSTED).

    ``certificates``: DER, the key's own first, then its issuers' in any order.
    """
    if not roots:
        return
    if not certificates:  # 1
        raise Refusal("expected an endorsement certificate, got none", reason=Reason.EK_CERTIFICATE_MISSING)
    leaf, *issuers = [_parse(data) for data in certificates]  # 2
    certified = _public_key(leaf)
    if certified != ek.spki():  # 3
        raise Refusal(
            f"expected a certificate for the endorsement key {ek.spki_sha256()}, got one for another key",
            reason=Reason.EK_CERTIFICATE_MISMATCH,
        )
    _verify_chain(leaf, issuers, roots=roots, now=now)  # 4


def _parse(data: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise _malformed(error) from error


def _public_key(certificate: x509.Certificate) -> bytes:
    """Return the DER SubjectPublicKeyInfo; a key marked for RSAES-OAEP alone, as in old certificates, is not read."""
    try:
        key = certificate.public_key()
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise _malformed(error) from error
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _verify_chain(
    leaf: x509.Certificate, issuers: list[x509.Certificate], *, roots: Sequence[x509.Certificate], now: datetime
) -> None:
    # EK certificates serve neither servers nor clients of TLS, so nothing but issuing is asked of their extensions
    # (TCG EK Credential Profile 2.5, 3.2: no server name, a subject alternative name that describes the TPM).
    agnostic = verification.Criticality.AGNOSTIC
    issuing = (
        verification.ExtensionPolicy.permit_all()
        .require_present(x509.BasicConstraints, agnostic, None)
        .may_be_present(x509.KeyUsage, agnostic, _require_signing)
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(roots)))
        .time(now)
        .max_chain_depth(_MAX_CHAIN_DEPTH)
        .extension_policies(ca_policy=issuing, ee_policy=verification.ExtensionPolicy.permit_all())
        .build_client_verifier()
    )
    try:
        verifier.verify(leaf, issuers)
    except verification.VerificationError as error:
        raise Refusal(
            f"expected an endorsement certificate that chains to a configured root, got {error}",
            reason=Reason.EK_CERTIFICATE_UNTRUSTED,
        ) from error


def _require_signing(_policy: verification.Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("an issuer that may not sign certificates")


def _malformed(error: Exception) -> Refusal:
    return Refusal(f"expected an endorsement certificate, got {error}", reason=Reason.EK_CERTIFICATE_MALFORMED)
