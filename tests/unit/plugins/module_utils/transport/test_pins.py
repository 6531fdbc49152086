# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pinned join CA: who is the service of this cluster, and who is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SiteError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import (
    JoinCaPins,
    join_service_name,
    verify_service_certificate,
)
from ansible_collections.attested.kubernetes.tests.support.atls import CLUSTER_ID, service_credentials
from ansible_collections.attested.kubernetes.tests.support.odd_names import ODD_DIRECTORY, odd_certificate
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CA = make_join_ca("prod", now=NOW)
CA_KEY = serialization.load_pem_private_key(CA.private_key, password=None)
CA_NAME = x509.load_pem_x509_certificate(CA.certificate).subject
FOREIGN_CA = make_join_ca("prod", now=NOW)
OTHER_CA = make_join_ca("test", now=NOW)
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


def resigned(certificate: x509.Certificate, old: bytes, new: bytes) -> x509.Certificate:
    """Return a certificate that the join CA has signed with ``new`` for each ``old``, also in a form that nobody makes.

    Also behind the signed part, where the algorithm is named again.
    """
    der = certificate.public_bytes(serialization.Encoding.DER)
    signed = certificate.tbs_certificate_bytes
    changed = signed.replace(old, new)
    assert len(changed) == len(signed)
    assert changed != signed
    start = der.index(signed)
    behind = der[start + len(signed) : -64].replace(old, new)
    signature = CA_KEY.sign(changed)  # type: ignore[union-attr, call-arg]
    return x509.load_der_x509_certificate(der[:start] + changed + behind + signature)


SERVER_AUTH = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01"
ED25519, NOBODYS = b"\x06\x03\x2b\x65\x70", b"\x06\x03\x2b\x65\x01"
ON_P256 = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01"
TWO = tuple(x509.UnrecognizedExtension(x509.ObjectIdentifier(f"1.2.{last}"), b"") for last in (3, 4))


def twice(certificate: x509.Certificate) -> x509.Certificate:
    """Return one of which both extensions of `TWO` are the same."""
    return resigned(certificate, b"\x06\x02\x2a\x04", b"\x06\x02\x2a\x03")


def names(*values: Any) -> x509.SubjectAlternativeName:
    """Return other names than the right one."""
    return x509.SubjectAlternativeName(values)


def test_the_service_of_the_cluster_is_accepted() -> None:
    """As the key service signs it, under one pin and under either of two."""
    good = service_credentials(CA, now=NOW).chain[0]
    one = JoinCaPins.from_pem(CA.certificate)
    both = JoinCaPins.from_pem(FOREIGN_CA.certificate + CA.certificate)
    for pins in (one, both):
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
        pytest.param(
            leaf(*GOOD, key=ec.generate_private_key(ec.SECP384R1())), NOW, "PEER_CERTIFICATE_MALFORMED", id="on P-384"
        ),
        pytest.param(
            resigned(leaf(*GOOD), ON_P256, ON_P256[:-1] + b"\x7f"),
            NOW,
            "PEER_CERTIFICATE_MALFORMED",
            id="a key of no known kind",
        ),
        pytest.param(twice(leaf(*GOOD, *TWO)), NOW, "PEER_CERTIFICATE_MALFORMED", id="an extension twice"),
        pytest.param(
            resigned(leaf(*GOOD), SERVER_AUTH, b"\x04" + SERVER_AUTH[1:]),
            NOW,
            "PEER_CERTIFICATE_MALFORMED",
            id="a usage that does not parse",
        ),
        pytest.param(
            service_credentials(OTHER_CA, now=NOW).chain[0], NOW, "JOIN_CA_MISMATCH", id="a CA of another name"
        ),
        pytest.param(
            resigned(leaf(*GOOD), ED25519, NOBODYS), NOW, "JOIN_CA_MISMATCH", id="signed by an algorithm of nobody"
        ),
        pytest.param(leaf(ODD_DIRECTORY, *GOOD[1:]), NOW, "PEER_CERTIFICATE_MALFORMED", id="a name of bits"),
        pytest.param(
            x509.load_der_x509_certificate(odd_certificate(ec.generate_private_key(ec.SECP256R1()))),
            NOW,
            "JOIN_CA_MISMATCH",
            id="an issuer of bits",
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


def test_the_name_is_of_the_cluster_id_and_no_longer_than_a_label_may_be() -> None:
    assert join_service_name(bytes(range(32))) == "join.000102030405060708090a0b0c0d0e0f.attested"


def refused(certificate: x509.Certificate, now: datetime = NOW) -> AttestedError:
    """Return what refuses a certificate."""
    with pytest.raises(AttestedError) as caught:
        verify_service_certificate(certificate, pins=PINS, cluster_id=CLUSTER_ID, now=now)
    return caught.value


def test_a_refusal_tells_the_names_that_came() -> None:
    assert "got no name" in refused(leaf(IS_NO_CA, FOR_SERVERS)).message
    two = names(x509.DNSName("a.example"), x509.DNSName("b.example"))
    assert "got 'a.example', 'b.example'" in refused(leaf(two, IS_NO_CA, FOR_SERVERS)).message


def test_a_long_issuer_is_cut() -> None:
    """Whoever answers chose it."""
    key = ed25519.Ed25519PrivateKey.generate()
    many = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, letter * 60) for letter in "abcde"])
    builder = x509.CertificateBuilder().subject_name(many).issuer_name(many).public_key(key.public_key())
    foreign = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1)).sign(key, None)
    said = repr(many.rfc4514_string())
    assert len(said) > 201
    assert f"got one of {said[:200]}: a foreign service" in refused(foreign).message


@pytest.mark.parametrize("off", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_certificate_is_good_from_its_first_second_to_its_last(off: timedelta) -> None:
    verify_service_certificate(leaf(*GOOD), pins=PINS, cluster_id=CLUSTER_ID, now=NOW + off)


@pytest.mark.parametrize("off", [timedelta(hours=-2), timedelta(hours=2)])
def test_a_wrong_clock_is_no_reason_to_give_up(off: timedelta) -> None:
    error = refused(leaf(*GOOD), NOW + off)
    assert isinstance(error, TransportError)
    assert error.retryable


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
        assert "from 2026-11-21T10:00:00Z to 2026-11-21T14:00:00Z" in told.message


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


def test_no_pin_trusts_nobody() -> None:
    with pytest.raises(SiteError, match="JOIN_CA_PIN_INVALID"):
        JoinCaPins(())


IS_CA = x509.BasicConstraints(ca=True, path_length=0)


@pytest.mark.parametrize(
    "pin",
    [
        pytest.param(twice(leaf(IS_CA, *TWO, key=CA_KEY)), id="with an extension twice"),
        pytest.param(
            resigned(leaf(IS_CA, FOR_SERVERS, key=CA_KEY), SERVER_AUTH, b"\x04" + SERVER_AUTH[1:]),
            id="with an extension that does not parse",
        ),
        pytest.param(resigned(leaf(IS_CA, key=CA_KEY), ED25519, NOBODYS), id="with a key of no known kind"),
    ],
)
def test_a_pin_that_cannot_be_understood_is_none(pin: x509.Certificate) -> None:
    with pytest.raises(SiteError, match="JOIN_CA_PIN_INVALID"):
        JoinCaPins((pin,))
