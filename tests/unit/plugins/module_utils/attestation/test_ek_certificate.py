# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chain of an endorsement certificate, where roots are configured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation.ek_certificate import (
    verify_ek_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import Public
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area, vector
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 11, 22, tzinfo=UTC)
EK = Public.parse(public_area("ek"))
LEAF = vector("ek.crt.der")
ROOT = x509.load_pem_x509_certificate(vector("ek-root.pem"))
ISSUER = x509.load_pem_x509_certificate(vector("ek-issuer.pem"))
ISSUER_DER = ISSUER.public_bytes(serialization.Encoding.DER)


def refused(
    certificates: Sequence[bytes] = (LEAF, ISSUER_DER), *, ek: Public = EK, now: datetime = NOW, roots: Any = (ROOT,)
) -> str:
    with pytest.raises(Refusal) as caught:
        verify_ek_certificate(ek, certificates, roots=roots, now=now)
    return caught.value.code


def issued(
    subject: str,
    issuer: str,
    public: Any,
    key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool | None = True,
    sign: bool = True,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name.from_rfc4514_string(f"CN={subject}"))
        .issuer_name(x509.Name.from_rfc4514_string(f"CN={issuer}"))
        .public_key(public)
        .serial_number(7)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if not sign:
        usage = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "key_cert_sign",
                "crl_sign",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        builder = builder.add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
    return builder.sign(key, hashes.SHA256())


def test_the_chain_of_a_recorded_tpm_verifies() -> None:
    verify_ek_certificate(EK, [LEAF, ISSUER_DER], roots=[ROOT], now=NOW)


def test_an_issuer_may_be_configured_as_root() -> None:
    verify_ek_certificate(EK, [LEAF], roots=[ISSUER], now=NOW)


@pytest.mark.parametrize("certificates", [(), (b"no certificate",)])
def test_without_roots_nothing_is_checked(certificates: tuple[bytes, ...]) -> None:
    verify_ek_certificate(EK, certificates, roots=(), now=NOW)


def test_step_1_no_certificate() -> None:
    assert refused(()) == "EK_CERTIFICATE_MISSING"


@pytest.mark.parametrize("certificates", [(b"",), (LEAF[:-1],), (LEAF, b"x")])
def test_step_2_a_certificate_that_cannot_be_read(certificates: tuple[bytes, ...]) -> None:
    assert refused(certificates) == "EK_CERTIFICATE_MALFORMED"


def test_step_2_a_key_that_cannot_be_read() -> None:
    """The object identifier of the key's algorithm is one that nobody knows."""
    rsa_encryption = bytes.fromhex("06092a864886f70d010101")
    unknown = bytes.fromhex("06092a864886f70d01017f")
    assert refused((LEAF.replace(rsa_encryption, unknown, 1), ISSUER_DER)) == "EK_CERTIFICATE_MALFORMED"


def test_step_3_certificate_of_another_tpm() -> None:
    """S4: a genuine certificate, but for somebody else's key."""
    assert refused(ek=SoftTpm().ek.public) == "EK_CERTIFICATE_MISMATCH"


def test_step_4_the_issuer_is_missing() -> None:
    assert refused((LEAF,)) == "EK_CERTIFICATE_UNTRUSTED"


def test_step_4_the_chain_is_not_valid_yet() -> None:
    assert refused(now=datetime(2026, 11, 1, tzinfo=UTC)) == "EK_CERTIFICATE_UNTRUSTED"


def test_step_4_a_root_of_the_same_name_with_another_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    root = issued("swtpm-localca-rootca", "swtpm-localca-rootca", key.public_key(), key)
    assert refused(roots=[root]) == "EK_CERTIFICATE_UNTRUSTED"


@pytest.mark.parametrize(
    "extensions",
    [
        pytest.param({"ca": False}, id="an issuer that is no authority"),
        pytest.param({"ca": None}, id="an issuer that does not say what it is"),
        pytest.param({"sign": False}, id="an issuer that may not sign certificates"),
    ],
)
def test_step_4_an_issuer_that_must_not_issue(extensions: dict[str, Any]) -> None:
    """Whoever has some certificate of the maker could issue endorsement certificates otherwise."""
    root_key, middle_key, tpm = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
        SoftTpm(),
    )
    root = issued("root", "root", root_key.public_key(), root_key)
    leaf = issued("tpm", "middle", tpm.ek.public.key(), middle_key, ca=False)
    good = issued("middle", "root", middle_key.public_key(), root_key)
    bad = issued("middle", "root", middle_key.public_key(), root_key, **extensions)
    chain = [one.public_bytes(serialization.Encoding.DER) for one in (leaf, good)]
    verify_ek_certificate(tpm.ek.public, chain, roots=[root], now=NOW)
    chain[1] = bad.public_bytes(serialization.Encoding.DER)
    assert refused(chain, ek=tpm.ek.public, roots=[root]) == "EK_CERTIFICATE_UNTRUSTED"


def test_a_chain_is_a_further_check() -> None:
    """An enrolled TPM without a certificate is refused where roots are configured."""
    exchange = Exchange()
    with pytest.raises(Refusal) as caught:
        exchange.run(demands=Demands(ek_roots=(ROOT,)))
    assert caught.value.code == "EK_CERTIFICATE_MISSING"


def test_a_certified_and_enrolled_machine_is_marked_as_certified() -> None:
    exchange, root_key = Exchange(), ec.generate_private_key(ec.SECP256R1())
    root = issued("root", "root", root_key.public_key(), root_key)
    leaf = issued("tpm", "root", exchange.tpm.ek.public.key(), root_key, ca=False)
    challenge, record = exchange.challenged(ek_certificates=(leaf.public_bytes(serialization.Encoding.DER),))
    node = exchange.verified(exchange.answered(challenge), record, demands=Demands(ek_roots=(root,)))
    assert node.machine.ek_certified


def test_a_chain_is_no_substitute_for_enrolment() -> None:
    """S3: a genuine and certified TPM that nobody enrolled stays unknown."""
    exchange, root_key = Exchange(), ec.generate_private_key(ec.SECP256R1())
    exchange.tpm = SoftTpm(exchange.boot.pcrs)
    root = issued("root", "root", root_key.public_key(), root_key)
    leaf = issued("tpm", "root", exchange.tpm.ek.public.key(), root_key, ca=False)
    challenge, record = exchange.challenged(ek_certificates=(leaf.public_bytes(serialization.Encoding.DER),))
    given = exchange.answered(challenge)
    with pytest.raises(PolicyError) as caught:
        exchange.verified(given, record, demands=Demands(ek_roots=(root,)))
    assert caught.value.code == "IDENTITY_UNKNOWN"
