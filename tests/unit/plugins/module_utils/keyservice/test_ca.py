# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The join CA and what it signs."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import (
    JoinCa,
    load_signing_key,
    make_join_ca,
    sign_server_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import join_service_name
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLUSTER_ID = bytes(range(32))


def request_for(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return a DER request that asks for a name which must be ignored."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "evil.example")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


VERSIONED = request_for(ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture(scope="module")
def ca() -> JoinCa:
    """Return a join CA."""
    return make_join_ca("prod", now=NOW)


def test_leaf_chains_to_the_ca_under_the_cluster_name_only(ca: JoinCa) -> None:
    """An independent path validation accepts the leaf for this cluster's name."""
    chain = sign_server_certificate(
        request_for(ec.generate_private_key(ec.SECP256R1())), ca=ca, cluster_id=CLUSTER_ID, now=NOW
    )
    leaf, root = x509.load_pem_x509_certificates(chain)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [join_service_name(CLUSTER_ID)]
    leaf.verify_directly_issued_by(root)


def test_leaf_lives_for_two_hours(ca: JoinCa) -> None:
    """S58: nobody can take it back, so it ends soon."""
    chain = sign_server_certificate(
        request_for(ec.generate_private_key(ec.SECP256R1())), ca=ca, cluster_id=CLUSTER_ID, now=NOW
    )
    assert x509.load_pem_x509_certificate(chain).not_valid_after_utc == NOW + timedelta(hours=2)


def test_names_fit_a_dns_label() -> None:
    """Each label of the service's name has at most 63 characters."""
    assert all(len(label) <= 63 for label in join_service_name(b"\xff" * 32).split("."))


@pytest.mark.parametrize(
    "csr",
    [
        pytest.param(b"", id="an empty request"),
        pytest.param(b"\x30\x03abc", id="bytes that are no request"),
        pytest.param(VERSIONED.replace(b"\x02\x01\x00\x30", b"\x02\x01\x02\x30", 1), id="a request of another version"),
        pytest.param(request_for(rsa.generate_private_key(65537, 2048)), id="a request for an RSA key"),
        pytest.param(request_for(ec.generate_private_key(ec.SECP384R1())), id="a request for another curve"),
    ],
)
def test_other_requests_are_refused(ca: JoinCa, csr: bytes) -> None:
    """Only a P-256 request signed by its own key is signed."""
    with pytest.raises(AttestedError) as refused:
        sign_server_certificate(csr, ca=ca, cluster_id=CLUSTER_ID, now=NOW)
    assert refused.value.code == "CSR_MALFORMED"


def test_request_signed_by_another_key_is_refused(ca: JoinCa) -> None:
    """A flipped bit in the signature refuses the request."""
    der = bytearray(request_for(ec.generate_private_key(ec.SECP256R1())))
    der[-1] ^= 1
    with pytest.raises(AttestedError) as refused:
        sign_server_certificate(bytes(der), ca=ca, cluster_id=CLUSTER_ID, now=NOW)
    assert refused.value.code == "CSR_MALFORMED"


def foreign_key() -> bytes:
    """Return another Ed25519 key in PEM."""
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize(
    "key", [pytest.param(b"no key", id="no PEM"), pytest.param(foreign_key(), id="the key of another CA")]
)
def test_key_must_belong_to_the_certificate(ca: JoinCa, key: bytes) -> None:
    """A key that is not the certificate's own is refused by name."""
    with pytest.raises(AttestedError) as refused:
        load_signing_key(JoinCa(certificate=ca.certificate, private_key=key))
    assert Coded(refused.value) == "SITE_SECRET_MALFORMED: join CA"


def test_certificate_of_an_unknown_version_is_refused(ca: JoinCa) -> None:
    """The library raises its own exception for it, which is no `ValueError`."""
    der = x509.load_pem_x509_certificate(ca.certificate).public_bytes(serialization.Encoding.DER)
    versioned = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x06", 1)
    pem = b"-----BEGIN CERTIFICATE-----\n" + b64encode(versioned) + b"\n-----END CERTIFICATE-----\n"
    with pytest.raises(x509.InvalidVersion):
        x509.load_pem_x509_certificate(pem)
    with pytest.raises(AttestedError) as refused:
        load_signing_key(JoinCa(certificate=pem, private_key=ca.private_key))
    assert Coded(refused.value) == "SITE_SECRET_MALFORMED: join CA in PEM"


def test_private_key_stays_out_of_the_representation(ca: JoinCa) -> None:
    """A log of the object shows no key."""
    assert ca.private_key.decode() not in repr(ca)
