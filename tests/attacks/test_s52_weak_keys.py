# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S52: keys that can be broken, wherever a key decides something."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import read_delivered
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_certificate import verify_ek_certificate
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import verify_quote
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import check_kubelet_request
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admin import _parsed as parse_admin_request
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import Successor, require_pair
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_RSA,
    ALG_RSASSA,
    ALG_SHA256,
    RH_ENDORSEMENT,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import RsaParameters, Scheme, Symmetric
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import AK
from ansible_collections.attested.kubernetes.tests.support.ek import (
    NOW,
    Authority,
    authority_extensions,
    der,
    ek_extensions,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import TpmMachine

THREAT = Threat(
    id="S52",
    title="Keys that can be broken",
    case="found here: an attestation key of RSA-1024, made by a real TPM; CA of RSA-1024; X.509 v1",
    bed="swtpm",
    stops=(
        ("evidence/tpm2.py step 1", "AK_KEY_UNSUPPORTED"),
        ("evidence/ek_certificate.py step 7", "EK_CERTIFICATE_UNTRUSTED"),
        ("evidence/ek_profile.py", "EK_CERTIFICATE_MALFORMED"),
        ("admin/enrolment.py", "EK_SOURCE_UNUSABLE"),
        ("keyservice/kubelet.py step 2", "CSR_KEY_UNSUPPORTED"),
        ("kubeadm/admin.py", "ADMIN_REQUEST_INVALID"),
        ("kubeadm/ca_files.py", "AUTHORITY_UNUSABLE"),
    ),
)

TPM = SoftTpm()
PUBLIC = TPM.ek.public.key()


def rsa_key(bits: int) -> rsa.RSAPrivateKey:
    """Return a key that is strong but for its length."""
    return rsa.generate_private_key(65537, bits)


def test_an_attestation_key_that_can_be_factored(machine: TpmMachine, policy: SitePolicy) -> None:
    """A real TPM makes the key and signs with it; all its attributes are good."""
    challenge, _record = machine.challenged(policy)
    given = machine.answered(challenge)

    def quoted(bits: int) -> object:
        parameters = RsaParameters(
            symmetric=Symmetric(), scheme=Scheme(ALG_RSASSA, ALG_SHA256), key_bits=bits, exponent=0
        )
        key = machine.tpm.create_primary(
            RH_ENDORSEMENT, replace(AK, type=ALG_RSA, parameters=parameters, unique=bytes(bits // 8))
        )
        quote = machine.tpm.quote(key, given.binding, challenge.selection)
        evidence = replace(
            given.bound.evidence, ak_public=key.public.marshal(), quote=quote.attest, signature=quote.signature
        )
        return verify_quote(evidence, qualifying_data=given.binding)

    assert quoted(2048)
    assert code_of(lambda: quoted(1024)) == "AK_KEY_UNSUPPORTED"


def chained(middle_key: Any, *, root_key: Any = None, leaf: Callable[[Authority], bytes] | None = None) -> object:
    """Verify an endorsement certificate below an issuer with this key, which the root certified."""
    root = Authority("Maker Root CA", key=root_key or ec.generate_private_key(ec.SECP256R1()))
    root.certificate = root.issue(root.name, root.key.public_key(), authority_extensions())
    middle = Authority("Maker Intermediate CA", key=middle_key)
    middle.certificate = root.issue(middle.name, middle_key.public_key(), authority_extensions())
    certificate = leaf(middle) if leaf else der(middle.issue("", PUBLIC, ek_extensions()))
    sent = [certificate, der(middle.certificate)]
    return verify_ek_certificate(TPM.ek.public, sent, roots=[root.certificate], now=NOW)


def test_an_authority_that_can_be_factored() -> None:
    """Whoever breaks an issuer's key certifies an endorsement key of his own."""
    assert chained(rsa_key(2048))
    assert code_of(lambda: chained(rsa_key(1024))) == "EK_CERTIFICATE_UNTRUSTED"
    assert code_of(lambda: chained(rsa.generate_private_key(3, 2048))) == "EK_CERTIFICATE_UNTRUSTED"
    assert code_of(lambda: chained(rsa_key(2048), root_key=rsa_key(1024))) == "EK_CERTIFICATE_UNTRUSTED"


@pytest.mark.parametrize(
    "algorithm",
    [hashes.SHA256(), hashes.SHA384(), hashes.SHA512(), hashes.SHA3_256(), hashes.SHA3_384(), hashes.SHA3_512()],
    ids=lambda one: one.name,
)
def test_an_endorsement_certificate_with_a_hash_that_holds(algorithm: hashes.HashAlgorithm) -> None:
    assert chained(
        ec.generate_private_key(ec.SECP256R1()),
        leaf=lambda middle: der(middle.issue("", PUBLIC, ek_extensions(), algorithm=algorithm)),
    )


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        pytest.param(ec.generate_private_key(ec.SECP256R1()), hashes.SHA224(), id="SHA-224"),
        pytest.param(ec.generate_private_key(ec.SECP256R1()), hashes.SHA3_224(), id="SHA3-224"),
        pytest.param(ed25519.Ed25519PrivateKey.generate(), None, id="Ed25519, which no TPM's maker uses"),
    ],
)
def test_an_endorsement_certificate_with_another_hash(key: Any, algorithm: hashes.HashAlgorithm | None) -> None:
    def leaf(middle: Authority) -> bytes:
        return der(middle.issue("", PUBLIC, ek_extensions(), algorithm=algorithm))

    assert code_of(lambda: chained(key, leaf=leaf)) == "EK_CERTIFICATE_UNTRUSTED"


@pytest.mark.parametrize("algorithm", [hashes.SHA224(), hashes.SHA3_256()], ids=lambda one: one.name)
def test_an_issuer_that_is_signed_with_another_hash_than_the_library_takes(algorithm: hashes.HashAlgorithm) -> None:
    root, middle = Authority.root(), Authority("Maker Intermediate CA")
    public = middle.key.public_key()

    def verified(with_hash: hashes.HashAlgorithm) -> object:
        middle.certificate = root.issue(middle.name, public, authority_extensions(), algorithm=with_hash)
        sent = [der(middle.issue("", PUBLIC, ek_extensions())), der(middle.certificate)]
        return verify_ek_certificate(TPM.ek.public, sent, roots=[root.certificate], now=NOW)

    assert verified(hashes.SHA256())
    assert code_of(lambda: verified(algorithm)) == "EK_CERTIFICATE_UNTRUSTED"


def test_a_certificate_of_the_first_version() -> None:
    """X.509 v1 has no extensions: nothing says whether its holder is an authority."""
    good = ec.generate_private_key(ec.SECP256R1())
    assert chained(good)
    for extensions in (ek_extensions(), {}):

        def leaf(middle: Any, extensions: Any = extensions) -> Any:
            return middle.issue_first_version(middle.issue("", PUBLIC, extensions))

        assert code_of(lambda leaf=leaf: chained(good, leaf=leaf)) == "EK_CERTIFICATE_MALFORMED"


@pytest.mark.parametrize(
    ("which", "code"),
    [
        pytest.param("root", "EK_CERTIFICATE_UNTRUSTED", id="the root of a site"),
        pytest.param("middle", "EK_CERTIFICATE_MALFORMED", id="an issuer that is sent"),
    ],
)
def test_an_authority_of_the_first_version(which: str, code: str) -> None:
    """It has the extensions of an authority, which its version does not know."""
    root = Authority.root()
    middle = root.below("Maker Intermediate CA")
    leaf = der(middle.issue("", PUBLIC, ek_extensions()))
    good = {"root": der(root.certificate), "middle": der(middle.certificate)}

    def verified(given: dict[str, bytes]) -> object:
        roots = [x509.load_der_x509_certificate(given["root"])]
        return verify_ek_certificate(TPM.ek.public, [leaf, given["middle"]], roots=roots, now=NOW)

    assert verified(good)
    old = root.issue_first_version({"root": root, "middle": middle}[which].certificate)
    assert code_of(lambda: verified({**good, which: old})) == code


def test_an_endorsement_key_that_a_reseller_sends(tmp_path: Path) -> None:
    def delivered(key: Any) -> object:
        path = tmp_path / "ek.pem"
        path.write_bytes(key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        return read_delivered(path)

    assert delivered(rsa_key(2048))
    assert code_of(lambda: delivered(rsa_key(1024))) == "EK_SOURCE_UNUSABLE"
    assert code_of(lambda: delivered(ec.generate_private_key(ec.SECP256K1()))) == "EK_SOURCE_UNUSABLE"


PEM = serialization.Encoding.PEM


def request(key: Any, *names: tuple[x509.ObjectIdentifier, str], encoding: serialization.Encoding = PEM) -> bytes:
    """Return a request for a certificate over this key."""
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, hashes.SHA256()).public_bytes(encoding)


def test_a_certificate_that_somebody_asks_for() -> None:
    node = [(x509.NameOID.ORGANIZATION_NAME, "system:nodes"), (x509.NameOID.COMMON_NAME, "system:node:w-1")]

    def kubelet(key: Any) -> object:
        return check_kubelet_request(request(key, *node, encoding=serialization.Encoding.DER), node_name="w-1")

    def admin(key: Any) -> object:
        return parse_admin_request(request(key, (x509.NameOID.COMMON_NAME, "attested:admin")))

    for ask, code in ((kubelet, "CSR_KEY_UNSUPPORTED"), (admin, "ADMIN_REQUEST_INVALID")):
        assert ask(rsa_key(2048))
        assert code_of(lambda ask=ask: ask(rsa_key(1024))) == code


def test_an_authority_of_the_cluster() -> None:
    """Its successor comes in over ssh, sealed; that it is strong is no secret's word."""

    def staged(bits: int) -> object:
        key = rsa_key(bits)
        public = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        private = key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        return require_pair(Successor(public=public, private=private), certified=False)

    assert staged(2048)
    assert code_of(lambda: staged(1024)) == "AUTHORITY_UNUSABLE"
