# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pinned join CA: who is the service of this cluster, and who is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.atls.pins import (
    JoinCaPins,
    join_service_name,
    verify_service_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    SiteError,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.ca import make_join_ca
from ansible_collections.attested.kubernetes.tests.support.atls import CLUSTER_ID, service_credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CA = make_join_ca("prod", now=NOW)
CA_KEY = serialization.load_pem_private_key(CA.private_key, password=None)
CA_NAME = x509.load_pem_x509_certificate(CA.certificate).subject
FOREIGN_CA = make_join_ca("prod", now=NOW)
PINS = JoinCaPins.from_pem(CA.certificate)
SERVER_NAME = x509.SubjectAlternativeName([x509.DNSName(join_service_name(CLUSTER_ID))])
IS_NO_CA = x509.BasicConstraints(ca=False, path_length=None)
FOR_SERVERS = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
GOOD = (SERVER_NAME, IS_NO_CA, FOR_SERVERS)


def leaf(*extensions: Any, key: Any = None) -> x509.Certificate:
    """Return a certificate that the join CA has signed, with these extensions."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(CA_NAME)
        .public_key((key or ec.generate_private_key(ec.SECP256R1())).public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(hours=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(CA_KEY, None)  # type: ignore[arg-type]


def names(*values: Any) -> x509.SubjectAlternativeName:
    """Return other names than the right one."""
    return x509.SubjectAlternativeName(values)


def test_the_service_of_the_cluster_is_accepted() -> None:
    """As the key service signs it, under one pin and under either of two."""
    good = service_credentials(CA, now=NOW).chain[0]
    both = JoinCaPins.from_pem(FOREIGN_CA.certificate + CA.certificate)
    for pins in (PINS, both):
        verify_service_certificate(good, pins=pins, cluster_id=CLUSTER_ID, now=NOW)


@pytest.mark.parametrize(
    ("certificate", "now", "code"),
    [
        pytest.param(
            service_credentials(FOREIGN_CA, now=NOW).chain[0], NOW, "JOIN_CA_MISMATCH", id="a CA of the same name"
        ),
        pytest.param(
            x509.load_pem_x509_certificate(FOREIGN_CA.certificate), NOW, "JOIN_CA_MISMATCH", id="a foreign CA itself"
        ),
        pytest.param(
            x509.load_pem_x509_certificate(CA.certificate),
            NOW,
            "PEER_CERTIFICATE_MALFORMED",
            id="the pinned CA itself as server",
        ),
        pytest.param(
            service_credentials(CA, cluster_id=bytes(32), now=NOW).chain[0],
            NOW,
            "JOIN_CLUSTER_MISMATCH",
            id="another cluster of the same CA",
        ),
        pytest.param(leaf(IS_NO_CA, FOR_SERVERS), NOW, "JOIN_CLUSTER_MISMATCH", id="no name"),
        pytest.param(
            leaf(
                names(*SERVER_NAME, x509.DNSName("*")),
                IS_NO_CA,
                FOR_SERVERS,
            ),
            NOW,
            "JOIN_CLUSTER_MISMATCH",
            id="a second name",
        ),
        pytest.param(
            leaf(names(x509.DNSName("*.attested")), IS_NO_CA, FOR_SERVERS), NOW, "JOIN_CLUSTER_MISMATCH", id="wildcard"
        ),
        pytest.param(leaf(SERVER_NAME, FOR_SERVERS), NOW, "PEER_CERTIFICATE_MALFORMED", id="no basic constraints"),
        pytest.param(
            leaf(SERVER_NAME, x509.BasicConstraints(ca=True, path_length=None), FOR_SERVERS),
            NOW,
            "PEER_CERTIFICATE_MALFORMED",
            id="an intermediate CA",
        ),
        pytest.param(leaf(SERVER_NAME, IS_NO_CA), NOW, "PEER_CERTIFICATE_MALFORMED", id="no usage"),
        pytest.param(
            leaf(SERVER_NAME, IS_NO_CA, x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])),
            NOW,
            "PEER_CERTIFICATE_MALFORMED",
            id="a client's certificate",
        ),
        pytest.param(
            leaf(*GOOD, key=ed25519.Ed25519PrivateKey.generate()), NOW, "PEER_CERTIFICATE_MALFORMED", id="another key"
        ),
        pytest.param(leaf(*GOOD), NOW + timedelta(hours=2), "JOIN_CERTIFICATE_EXPIRED", id="expired"),
        pytest.param(leaf(*GOOD), NOW - timedelta(hours=2), "CLOCK_SKEW", id="of the future"),
    ],
)
def test_others_are_refused(certificate: x509.Certificate, now: datetime, code: str) -> None:
    """Each for its own cause."""
    with pytest.raises(AttestedError) as caught:
        verify_service_certificate(certificate, pins=PINS, cluster_id=CLUSTER_ID, now=now)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("off", "code", "said"),
    [
        pytest.param(timedelta(hours=-1), None, "", id="an hour behind"),
        pytest.param(timedelta(hours=1), None, "", id="an hour ahead"),
        pytest.param(timedelta(hours=-3), "CLOCK_SKEW", "60 min or more behind", id="three hours behind"),
        pytest.param(timedelta(days=-365), "CLOCK_SKEW", "364 d or more behind", id="a year behind"),
        pytest.param(timedelta(days=365), "JOIN_CERTIFICATE_EXPIRED", "364 d or more ahead", id="a year ahead"),
    ],
)
def test_a_clock_that_is_wrong_is_told_with_both_times(off: timedelta, code: str | None, said: str) -> None:
    """A certificate as the key service makes it now, looked at by a machine whose clock is off."""
    certificate = service_credentials(CA, now=NOW).chain[0]
    told = None
    try:
        verify_service_certificate(certificate, pins=PINS, cluster_id=CLUSTER_ID, now=NOW + off)
    except TransportError as error:
        told = error
    assert (told and told.code) == code
    if told is not None:
        assert said in told.message
        assert f"{NOW + off:%Y-%m-%dT%H:%M:%SZ}" in told.message
        assert "from 2026-11-21T10:00:00Z to 2026-11-22T12:00:00Z" in told.message


def test_a_mismatch_names_both_possible_causes() -> None:
    """A node cannot tell a foreign service from a balancer that terminates TLS."""
    with pytest.raises(AttestedError) as caught:
        verify_service_certificate(
            service_credentials(FOREIGN_CA, now=NOW).chain[0], pins=PINS, cluster_id=CLUSTER_ID, now=NOW
        )
    for said in (caught.value.message, caught.value.hint):
        assert "another service" in said or "foreign service" in said
        assert "load balancer" in said


def self_signed(key: Any, *extensions: Any) -> bytes:
    """Return a PEM certificate over ``key``."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pin")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", id="no certificate inside"),
        pytest.param(CA.certificate * 3, id="three pins"),
        pytest.param(
            self_signed(ec.generate_private_key(ec.SECP256R1()), x509.BasicConstraints(ca=True, path_length=0)),
            id="a P-256 CA",
        ),
        pytest.param(self_signed(ed25519.Ed25519PrivateKey.generate()), id="an Ed25519 certificate that is no CA"),
        pytest.param(
            CA.certificate
            + self_signed(ed25519.Ed25519PrivateKey.generate(), x509.BasicConstraints(ca=False, path_length=None)),
            id="a good pin and a leaf",
        ),
    ],
)
def test_pins_are_one_or_two_ed25519_authorities(pem: bytes) -> None:
    """Anything else is a mistake of the site, found before anything is dialled."""
    with pytest.raises(SiteError, match="JOIN_CA_PIN_INVALID"):
        JoinCaPins.from_pem(pem)
