# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's client certificate: the registered name decides, the request only brings a key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import kubelet
from ansible_collections.attested.kubernetes.tests.support.keys_of_no_use import encrypted_key, unknown_key
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
O, CN, OU = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME  # noqa: E741
GOOD = [(O, "system:nodes"), (CN, "system:node:w-1")]
_UNHASHED = (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)
MOST_BYTES = 16 * 1024
NAME_TEXT = b"\x0c\x0fsystem:node:w-1"


ONLY_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def make_ca(key: Any = None) -> kubelet.ClusterCa:
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(CN, "kubernetes")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    algorithm = None if isinstance(key, _UNHASHED) else hashes.SHA256()
    pem = builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)
    return kubelet.load_cluster_ca(pem, private_pem(key))


def private_pem(key: Any) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_request(subject: list[tuple[Any, str]] | None = None, key: Any = None, extension: Any = None) -> bytes:
    key = key or ec.generate_private_key(ec.SECP256R1())
    names = x509.Name([x509.NameAttribute(oid, value) for oid, value in (GOOD if subject is None else subject)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(names)
    if extension is not None:
        builder = builder.add_extension(extension, critical=False)
    algorithm = None if isinstance(key, _UNHASHED) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.DER)


def rsa_key_of(first: int, second: int) -> rsa.RSAPrivateKey:
    """Return the key of two primes, whose generation would take seconds."""
    private = pow(65537, -1, (first - 1) * (second - 1))
    numbers = rsa.RSAPrivateNumbers(
        p=first,
        q=second,
        d=private,
        dmp1=private % (first - 1),
        dmq1=private % (second - 1),
        iqmp=pow(second, -1, first),
        public_numbers=rsa.RSAPublicNumbers(e=65537, n=first * second),
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


LARGEST_RSA = rsa_key_of(2**2048 - 1557, 2**2048 - 2543)
TOO_LARGE_RSA = rsa_key_of(2**2048 - 1557, 2**2049 - 1449)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(ec.generate_private_key(ec.SECP256R1()), id="P-256"),
        pytest.param(ed25519.Ed25519PrivateKey.generate(), id="Ed25519"),
        pytest.param(rsa.generate_private_key(65537, 2048), id="RSA-2048"),
        pytest.param(LARGEST_RSA, id="RSA-4096"),
    ],
)
def test_certificate_names_the_registered_node_and_nothing_else(key: Any) -> None:
    ca = make_ca()
    asks_for_more = x509.SubjectAlternativeName([x509.DNSName("api.prod.example")])
    request = kubelet.check_kubelet_request(make_request(key=key, extension=asks_for_more), node_name="w-1")
    pem = kubelet.sign_kubelet_certificate(request, node_name="w-1", machine="ek-1", ca=ca, now=NOW)
    certificate = x509.load_pem_x509_certificate(pem)
    certificate.verify_directly_issued_by(ca.certificate)
    group = (NameOID.ORGANIZATION_NAME, "attested:ek-1")
    assert [(part.oid, part.value) for part in certificate.subject] == [GOOD[0], group, GOOD[1]]
    assert certificate.public_key() == key.public_key()
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + timedelta(hours=72)
    assert [(extension.value, extension.critical) for extension in certificate.extensions] == [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (ONLY_SIGNS, True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False),
    ]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param([(O, "system:nodes"), (CN, "system:node:cp-1")], id="another node's name"),
        pytest.param([(O, "system:nodes"), (CN, "system:node:w-10")], id="a longer name"),
        pytest.param([(O, "system:nodes"), (CN, "system:node:W-1")], id="the name in upper case"),
        pytest.param([(O, "system:nodes"), (CN, "w-1")], id="the bare node name"),
        pytest.param([(O, "system:masters"), (CN, "system:node:w-1")], id="the group of the admins"),
        pytest.param([*GOOD, (O, "system:masters")], id="a second group"),
        pytest.param([(O, "system:nodes"), (O, "system:nodes"), (CN, "system:node:w-1")], id="the group twice"),
        pytest.param([*GOOD, (CN, "system:node:cp-1")], id="a second name"),
        pytest.param([*GOOD, (OU, "x")], id="a part that nobody needs"),
        pytest.param([(CN, "system:node:w-1")], id="no group"),
        pytest.param([], id="no subject at all"),
    ],
)
def test_csr_for_another_nodes_name_is_refused(subject: list[tuple[Any, str]]) -> None:
    with pytest.raises(AttestedError) as caught:
        kubelet.check_kubelet_request(make_request(subject), node_name="w-1")
    assert caught.value.code == "CSR_NAME_MISMATCH"


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(ec.generate_private_key(ec.SECP384R1()), id="P-384"),
        pytest.param(rsa.generate_private_key(65537, 1024), id="RSA-1024"),
        pytest.param(TOO_LARGE_RSA, id="RSA-4097"),
        pytest.param(ed448.Ed448PrivateKey.generate(), id="Ed448"),
    ],
)
def test_a_key_of_another_kind_is_refused(key: Any) -> None:
    with pytest.raises(AttestedError) as caught:
        kubelet.check_kubelet_request(make_request(key=key), node_name="w-1")
    assert caught.value.code == "CSR_KEY_UNSUPPORTED"


def _broken_signature(der: bytes) -> bytes:
    return der[:-1] + bytes([der[-1] ^ 1])


def _signed_anew(old: bytes, new: bytes) -> bytes:
    """Return a request that says ``new`` for ``old`` below its own signature."""
    key = ed25519.Ed25519PrivateKey.generate()
    der = make_request(key=key)
    signed = x509.load_der_x509_csr(der).tbs_certrequest_bytes
    changed = signed.replace(old, new)
    assert len(changed) == len(signed) != 0
    assert changed != signed
    return der.replace(signed, changed)[:-64] + key.sign(changed)


def _of_size(size: int) -> bytes:
    """Return a good request of so many bytes, made large by an extension that nobody reads."""
    key = ed25519.Ed25519PrivateKey.generate()

    def with_padding(length: int) -> bytes:
        return make_request(
            key=key, extension=x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), bytes(length))
        )

    der = with_padding(size // 2 + size - len(with_padding(size // 2)))
    assert len(der) == size
    return der


def test_a_request_may_be_of_the_largest_size() -> None:
    assert kubelet.check_kubelet_request(_of_size(MOST_BYTES), node_name="w-1")


@pytest.mark.parametrize(
    "der",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x30\x03\x02\x01\x00", id="another structure"),
        pytest.param(_broken_signature(make_request()), id="a changed signature"),
        pytest.param(make_request() + b"\x00", id="a byte behind it"),
        pytest.param(_of_size(MOST_BYTES + 1), id="a byte too many"),
        pytest.param(
            _signed_anew(b"\x0c\x0fsystem:node:w-1", b"\x0c\x0fsystem:node:w-\xff"), id="a name that is no text"
        ),
        pytest.param(_signed_anew(b"\x0c\x0fsystem:node:w-1", b"\x03\x0f\x00ystem:node:w-1"), id="a name of bits"),
        pytest.param(_signed_anew(b"\x02\x01\x00", b"\x02\x01\x01"), id="another version"),
        pytest.param(_signed_anew(b"\x06\x03\x2b\x65\x70", b"\x06\x03\x2b\x65\x01"), id="a key of no known kind"),
    ],
)
def test_a_malformed_request_is_refused(der: bytes) -> None:
    with pytest.raises(AttestedError) as caught:
        kubelet.check_kubelet_request(der, node_name="w-1")
    assert caught.value.code == "CSR_MALFORMED"


def test_a_ticket_names_everybody_who_is_believed_whoever_signs_first() -> None:
    old, new = make_ca(), make_ca()
    both = kubelet.load_cluster_ca(old.pem() + new.pem(), private_pem(old.private_key))
    assert both.pem() == old.pem() + new.pem()
    assert both.certificate == old.certificate


def test_the_key_of_a_ca_that_is_only_believed_does_not_sign() -> None:
    old, new = make_ca(), make_ca()
    with pytest.raises(AttestedError) as caught:
        kubelet.load_cluster_ca(old.pem() + new.pem(), private_pem(new.private_key))
    assert caught.value.code == "CLUSTER_CA_UNUSABLE"


def test_a_ca_with_a_foreign_key_is_refused() -> None:
    one, other = make_ca(), ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(AttestedError) as caught:
        kubelet.load_cluster_ca(one.pem(), private_pem(other))
    assert caught.value.code == "CLUSTER_CA_UNUSABLE"


@pytest.mark.parametrize("key", [encrypted_key, unknown_key])
def test_a_ca_whose_key_cannot_be_loaded_is_refused(key: Any) -> None:
    with pytest.raises(AttestedError) as caught:
        kubelet.load_cluster_ca(make_ca().pem(), key())
    assert caught.value.code == "CLUSTER_CA_UNUSABLE"


def test_a_ca_of_a_kind_that_kubernetes_does_not_use_is_refused() -> None:
    with pytest.raises(AttestedError) as caught:
        make_ca(ed448.Ed448PrivateKey.generate())
    assert caught.value.code == "CLUSTER_CA_UNUSABLE"


def test_a_ca_that_is_no_pem_is_refused_without_its_text() -> None:
    with pytest.raises(AttestedError) as caught:
        kubelet.load_cluster_ca(b"x", b"y")
    assert caught.value.code == "CLUSTER_CA_UNUSABLE"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("subject", "claimed"),
    [
        pytest.param(GOOD, "w-1", id="a node's request"),
        pytest.param([(CN, "admin")], "", id="a user's request"),
        pytest.param([(CN, "system:node:w-1,spec.role=worker")], "", id="a name that would say more in a selector"),
        pytest.param([(CN, "system:node:w-1"), (CN, "system:node:w-2")], "", id="two names"),
    ],
)
def test_what_a_request_claims_is_only_told(subject: Any, claimed: str) -> None:
    assert kubelet.claimed_node_name(make_request(subject)) == claimed


def test_bytes_that_are_no_request_claim_nothing() -> None:
    assert kubelet.claimed_node_name(b"\x30\x80") == ""


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(rsa.generate_private_key(65537, 2048), id="RSA as kubeadm makes it"),
        pytest.param(ed25519.Ed25519PrivateKey.generate(), id="Ed25519"),
    ],
)
def test_a_ca_of_another_kind_signs_too(key: Any) -> None:
    ca = make_ca(key)
    request = kubelet.check_kubelet_request(make_request(), node_name="w-1")
    pem = kubelet.sign_kubelet_certificate(request, node_name="w-1", machine="ek-1", ca=ca, now=NOW)
    x509.load_pem_x509_certificate(pem).verify_directly_issued_by(ca.certificate)


def test_the_services_own_credential_is_short_and_in_no_group() -> None:
    ca = make_ca()
    certificate, key = kubelet.mint_service_credential(ca, now=NOW)
    parsed = x509.load_pem_x509_certificate(certificate)
    parsed.verify_directly_issued_by(ca.certificate)
    assert [(part.oid, part.value) for part in parsed.subject] == [(CN, "attested:key-service")]
    assert parsed.not_valid_after_utc == NOW + timedelta(hours=24)
    assert serialization.load_pem_private_key(key, password=None).public_key() == parsed.public_key()
