# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S15: a kubelet's certificate request that asks for more than its node: every field once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import check_kubelet_request
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S15",
    title="CSR for another node's name or group",
    case="hijack in the archived Cluster API proposal",
    bed="api",
    stops=(
        ("keyservice/kubelet.py step 3", "CSR_NAME_MISMATCH"),
        ("keyservice/kubelet.py step 2", "CSR_KEY_UNSUPPORTED"),
        ("keyservice/kubelet.py step 1", "CSR_MALFORMED"),
        ("keyservice/release.py step 1", "ROLE_NOT_REGISTERED"),
    ),
)

GOOD = ((NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, "system:node:w-1"))
PLAIN = ec.generate_private_key(ec.SECP256R1())


def request(names: tuple[tuple[x509.ObjectIdentifier, str], ...] = GOOD, *extensions: Any, key: Any = PLAIN) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(kind, value) for kind, value in names])
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_the_good_request() -> None:
    assert check_kubelet_request(request(), node_name="w-1").spki_sha256


@pytest.mark.parametrize(
    "names",
    [
        pytest.param((GOOD[0], (NameOID.COMMON_NAME, "system:node:cp-1")), id="another node"),
        pytest.param((GOOD[0], (NameOID.COMMON_NAME, "system:node:w-10")), id="a longer name"),
        pytest.param((GOOD[0], (NameOID.COMMON_NAME, "system:node:W-1")), id="other letters"),
        pytest.param((GOOD[0], (NameOID.COMMON_NAME, "system:node:")), id="no name"),
        pytest.param((GOOD[0], (NameOID.COMMON_NAME, "kubernetes-admin")), id="the admin"),
        pytest.param(((NameOID.ORGANIZATION_NAME, "system:masters"), GOOD[1]), id="another group"),
        pytest.param((*GOOD, (NameOID.ORGANIZATION_NAME, "system:masters")), id="a group more"),
        pytest.param((*GOOD, GOOD[0]), id="a group twice"),
        pytest.param((*GOOD, (NameOID.COMMON_NAME, "system:node:cp-1")), id="a second name"),
        pytest.param((*GOOD, (NameOID.ORGANIZATIONAL_UNIT_NAME, "x")), id="a field more"),
        pytest.param(GOOD[1:], id="no group"),
        pytest.param((), id="nothing"),
    ],
)
def test_subjects(names: tuple[tuple[x509.ObjectIdentifier, str], ...]) -> None:
    assert code_of(lambda: check_kubelet_request(request(names), node_name="w-1")) == "CSR_NAME_MISMATCH"


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(ec.generate_private_key(ec.SECP384R1()), id="another curve"),
        pytest.param(rsa.generate_private_key(65537, 1024), id="a short RSA key"),
    ],
)
def test_keys(key: Any) -> None:
    assert code_of(lambda: check_kubelet_request(request(key=key), node_name="w-1")) == "CSR_KEY_UNSUPPORTED"


def test_a_request_signed_by_another_key() -> None:
    """No proof that the asker holds the key."""
    good = request()
    forged = good[:-1] + bytes([good[-1] ^ 1])
    assert code_of(lambda: check_kubelet_request(forged, node_name="w-1")) == "CSR_MALFORMED"


@pytest.mark.parametrize(
    "extension",
    [
        pytest.param(x509.BasicConstraints(ca=True, path_length=None), id="a CA"),
        pytest.param(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), id="a server"),
        pytest.param(x509.SubjectAlternativeName([x509.DNSName("kubernetes.default")]), id="another name of a host"),
        pytest.param(x509.KeyUsage(*[True] * 7, False, False), id="every use"),
    ],
)
def test_extensions_that_are_asked_for_are_not_given(extension: Any) -> None:
    """The certificate's extensions are ours: whatever is asked, it is a client's and nothing more."""
    bed = Bed()
    bed.csr = request(GOOD, extension)
    certificate = x509.load_pem_x509_certificate(bed.release().issued.held.certificate)
    present = {one.oid: one.value for one in certificate.extensions}
    assert present[x509.BasicConstraints.oid].ca is False
    assert list(present[x509.ExtendedKeyUsage.oid]) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert x509.SubjectAlternativeName.oid not in present
    assert not present[x509.KeyUsage.oid].key_cert_sign


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        pytest.param(Attack(csr_name="cp-1"), "CSR_NAME_MISMATCH", id="the first control plane's name"),
        pytest.param(Attack(fields={"is_control_plane": True}), "ROLE_NOT_REGISTERED", id="a control plane's files"),
    ],
)
def test_a_worker_that_asks_a_real_service(
    bed: ServiceBed, machines: Callable[..., Machine], attack: Attack, code: str
) -> None:
    assert machines().attack(Attack()).response
    machine = machines()
    assert refused(lambda: machine.attack(attack), bed)["reason"] == code
    assert "diskId" not in machine.identity().get("status", {})
