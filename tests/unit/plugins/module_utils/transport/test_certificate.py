# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates with evidence: one good form, and a refusal for every change of it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    MAX_EVIDENCE_BYTES,
    make_certificate,
    new_key,
    open_certificate,
)
from ansible_collections.attested.kubernetes.tests.support.odd_names import ODD_DIRECTORY
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EVIDENCE = x509.UnrecognizedExtension(x509.ObjectIdentifier(EVIDENCE_OID), b"evidence")


def built(
    key: Any = None,
    *,
    signer: Any = None,
    issuer: str = "x",
    dates: tuple[datetime, datetime] = (NOW - timedelta(hours=2), NOW + timedelta(hours=2)),
    extensions: tuple[x509.ExtensionType, ...] = (EVIDENCE,),
) -> x509.Certificate:
    """Return a certificate that is good unless an argument says otherwise."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    signer = signer or key
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(dates[0])
        .not_valid_after(dates[1])
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def test_what_goes_in_comes_out() -> None:
    """The evidence, raw, and the hash of exactly the key in the certificate."""
    key = new_key()
    made = make_certificate(key, oid=EVIDENCE_OID, evidence=b"\x00raw\xff", now=NOW)
    opened = open_certificate((made,), oid=EVIDENCE_OID, now=NOW)
    spki = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert (b"\x00raw\xff", hashlib.sha256(spki).digest()) == (opened.evidence, opened.spki_sha256)


def test_a_certificate_as_constellation_makes_it_is_accepted() -> None:
    """Two hours around now, any common name, one extension."""
    assert open_certificate((built(),), oid=EVIDENCE_OID, now=NOW).evidence == b"evidence"


OTHER_OID = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.9900.2.1"), b"evidence")
TOO_LARGE = x509.UnrecognizedExtension(x509.ObjectIdentifier(EVIDENCE_OID), bytes(MAX_EVIDENCE_BYTES + 1))
EMPTY = x509.UnrecognizedExtension(x509.ObjectIdentifier(EVIDENCE_OID), b"")


@pytest.mark.parametrize(
    ("chain", "code"),
    [
        pytest.param([], "PEER_CERTIFICATE_MALFORMED", id="no certificate"),
        pytest.param([built(), built()], "PEER_CERTIFICATE_MALFORMED", id="two certificates"),
        pytest.param(
            [built(signer=ec.generate_private_key(ec.SECP256R1()))],
            "PEER_CERTIFICATE_MALFORMED",
            id="signed by another key",
        ),
        pytest.param([built(issuer="y")], "PEER_CERTIFICATE_MALFORMED", id="issuer is another name"),
        pytest.param([built(ec.generate_private_key(ec.SECP384R1()))], "PEER_CERTIFICATE_MALFORMED", id="P-384"),
        pytest.param([built(rsa.generate_private_key(65537, 2048))], "PEER_CERTIFICATE_MALFORMED", id="RSA"),
        pytest.param([built(ed25519.Ed25519PrivateKey.generate())], "PEER_CERTIFICATE_MALFORMED", id="Ed25519"),
        pytest.param(
            [built(dates=(NOW - timedelta(hours=2), NOW - timedelta(seconds=1)))],
            "PEER_CERTIFICATE_EXPIRED",
            id="over since a second",
        ),
        pytest.param(
            [built(dates=(NOW + timedelta(seconds=1), NOW + timedelta(hours=2)))],
            "PEER_CERTIFICATE_EXPIRED",
            id="begins in a second",
        ),
        pytest.param([built(extensions=())], "EVIDENCE_MISSING", id="no extension"),
        pytest.param([built(extensions=(OTHER_OID,))], "EVIDENCE_MISSING", id="evidence of another kind"),
        pytest.param([built(extensions=(EVIDENCE, OTHER_OID))], "PEER_CERTIFICATE_MALFORMED", id="two kinds"),
        pytest.param(
            [built(extensions=(x509.BasicConstraints(ca=True, path_length=None), EVIDENCE))],
            "PEER_CERTIFICATE_MALFORMED",
            id="a CA with evidence",
        ),
        pytest.param([built(extensions=(ODD_DIRECTORY,))], "PEER_CERTIFICATE_MALFORMED", id="a name of bits"),
        pytest.param([built(extensions=(TOO_LARGE,))], "EVIDENCE_TOO_LARGE", id="one byte too many"),
        pytest.param([built(extensions=(EMPTY,))], "EVIDENCE_TOO_LARGE", id="empty evidence"),
    ],
)
def test_other_forms_are_refused(chain: list[x509.Certificate], code: str) -> None:
    """Each with its own code."""
    with pytest.raises(Refusal) as caught:
        open_certificate(chain, oid=EVIDENCE_OID, now=NOW)
    assert caught.value.code == code


def test_evidence_that_no_peer_would_take_is_not_sent() -> None:
    """The limit holds where the certificate is made, too."""
    with pytest.raises(Refusal, match="EVIDENCE_TOO_LARGE"):
        make_certificate(new_key(), oid=EVIDENCE_OID, evidence=bytes(MAX_EVIDENCE_BYTES + 1), now=NOW)
