# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a renewed certificate must be: another one, for the same, by the same, valid now, with its own key."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.leaf_certificate import verify_renewed
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import NOW
from ansible_collections.attested.kubernetes.tests.unit.fakes.pki import DAY, pem, sign
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, x25519

SERVER, CLIENT = x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH
CA, CA_KEY = sign("kubernetes", issuer=None, key=None, begins=NOW - DAY, ends=NOW + DAY, ca=True)
OTHER, OTHER_KEY = sign("another", issuer=None, key=None, begins=NOW - DAY, ends=NOW + DAY, ca=True)
TWIN, TWIN_KEY = sign("kubernetes", issuer=None, key=None, begins=NOW - DAY, ends=NOW + DAY, ca=True)
KEY = ec.generate_private_key(ec.SECP256R1())


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def leaf(serial: int = 2, **changes: Any) -> x509.Certificate:
    """Return a certificate of an API server, and of ``KEY``."""
    given: dict[str, Any] = {
        "subject": "apiserver",
        "issuer": CA,
        "signer": CA_KEY,
        "begins": NOW - DAY,
        "ends": NOW + DAY,
        "names": (x509.DNSName("kubernetes"), x509.IPAddress(ipaddress.ip_address("10.96.0.1"))),
        "usages": (SERVER,),
        **changes,
    }
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(given["subject"]))
        .issuer_name(given["issuer"].subject)
        .public_key(KEY.public_key())
        .serial_number(serial)
        .not_valid_before(given["begins"])
        .not_valid_after(given["ends"])
    )
    if given["names"]:
        builder = builder.add_extension(x509.SubjectAlternativeName(given["names"]), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(given["usages"]), critical=False)
    return builder.sign(given["signer"], hashes.SHA256())


BEFORE = leaf(1)


def verified(after: x509.Certificate, **changes: Any) -> str:
    given: dict[str, Any] = {"key": pem(KEY), "ca": pem(CA), "before": pem(BEFORE), "now": NOW, **changes}
    credential = KubeletCredential(certificate=pem(after), key=given["key"])
    return verify_renewed(
        "apiserver", before=given["before"], after=credential, authority=given["ca"], now=given["now"]
    )


def wrong(after: x509.Certificate, **changes: Any) -> str:
    """Return what was found wrong."""
    with pytest.raises(KubeadmError) as caught:
        verified(after, **changes)
    assert caught.value.code == "CONTROL_PLANE_RENEWAL_FAILED"
    return caught.value.message.removeprefix("certificate apiserver after its renewal: ")


def test_its_serial_number_is_returned() -> None:
    assert verified(leaf(0xAB)) == "ab"


@pytest.mark.parametrize(
    ("after", "found"),
    [
        pytest.param(leaf(1), "expected another certificate, found the same", id="the same one"),
        pytest.param(leaf(subject="admin"), "expected the subject CN=apiserver, got CN=admin", id="another subject"),
        pytest.param(
            leaf(names=(x509.DNSName("kubernetes"), x509.DNSName("evil"))),
            "expected the alternative names ['10.96.0.1', 'kubernetes'], got ['evil', 'kubernetes']",
            id="other names",
        ),
        pytest.param(
            leaf(names=()), "expected the alternative names ['10.96.0.1', 'kubernetes'], got []", id="without names"
        ),
        pytest.param(
            leaf(usages=(SERVER, CLIENT)),
            "expected the usages ['1.3.6.1.5.5.7.3.1'], got ['1.3.6.1.5.5.7.3.1', '1.3.6.1.5.5.7.3.2']",
            id="a usage more",
        ),
        pytest.param(leaf(signer=TWIN_KEY), "expected it signed by its CA, it is not", id="a CA of the same name"),
        pytest.param(
            leaf(issuer=OTHER, signer=OTHER_KEY), "expected it signed by its CA, it is not", id="a CA of another name"
        ),
        pytest.param(leaf(begins=NOW + DAY / 2), "expected it to be valid now", id="good from tomorrow"),
        pytest.param(leaf(ends=NOW - DAY / 2), "expected it to be valid now", id="good until yesterday"),
    ],
)
def test_a_renewed_certificate_that_differs_in_one_point(after: x509.Certificate, found: str) -> None:
    assert verified(leaf()) == "2"
    assert wrong(after) == found


def test_it_is_good_from_its_first_second_until_before_its_last() -> None:
    after = leaf(begins=NOW, ends=NOW + DAY)
    assert verified(after, now=NOW) == "2"
    assert wrong(after, now=NOW + DAY) == "expected it to be valid now"


def locked(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"nobody knows it"),
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"key": pem(OTHER_KEY)}, "expected its own key in the key file", id="the key of another"),
        pytest.param({"key": b"none"}, "expected a certificate and a key in PEM", id="no key"),
        pytest.param({"key": locked(KEY)}, "expected a certificate and a key in PEM", id="a key behind a password"),
        pytest.param({"before": b"none"}, "expected a certificate and a key in PEM", id="no certificate before"),
    ],
)
def test_what_lies_beside_a_renewed_certificate(changes: dict[str, bytes], found: str) -> None:
    assert wrong(leaf(), **changes) == found


def test_a_ca_whose_key_signs_nothing_has_signed_nothing() -> None:
    builder = x509.CertificateBuilder(
        name("kubernetes"), name("kubernetes"), x25519.X25519PrivateKey.generate().public_key(), 9, NOW, NOW + DAY
    )
    assert wrong(leaf(), ca=pem(builder.sign(CA_KEY, hashes.SHA256()))) == "expected it signed by its CA, it is not"
