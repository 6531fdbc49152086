# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate of an endorsement key, where roots are configured: real ones, and built ones changed in one point."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_certificate import (
    CertifiedKey,
    verify_ek_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_profile import MAX_CERTIFICATE_BYTES
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Public
from ansible_collections.attested.kubernetes.tests.support.ek import (
    NOW,
    Authority,
    authority_extensions,
    der,
    ek_extensions,
    ek_public,
    key_usage,
    tpm_name,
)
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
from ansible_collections.attested.kubernetes.tests.support.house import ROOT as TREE
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area, vector
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa, x25519
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

REAL = TREE / "tests" / "vectors" / "ek" / "google-vtpm"
EK = Public.parse(public_area("ek"))
LEAF = vector("ek.crt.der")
ROOT = x509.load_pem_x509_certificate(vector("ek-root.pem"))
ISSUER = x509.load_pem_x509_certificate(vector("ek-issuer.pem"))
ISSUER_DER = der(ISSUER)

TPM = SoftTpm()
TPM_KEY = TPM.ek.public.key()
MAKER = Authority.root()
MIDDLE = MAKER.below("Maker Intermediate CA")
GOOD = der(MIDDLE.issue("", TPM_KEY, ek_extensions()))


ED25519, NOBODYS = b"\x06\x03\x2b\x65\x70", b"\x06\x03\x2b\x65\x01"


def real(name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((REAL / f"{name}.pem").read_bytes())


def verified(certificates: Sequence[bytes] = (LEAF, ISSUER_DER), *, ek: Public = EK, **changes: Any) -> CertifiedKey:
    found = verify_ek_certificate(ek, certificates, **{"roots": (ROOT,), "now": NOW, **changes})
    assert found is not None
    return found


def refused(certificates: Sequence[bytes] = (LEAF, ISSUER_DER), *, ek: Public = EK, **changes: Any) -> str:
    with pytest.raises(Refusal) as caught:
        verified(certificates, ek=ek, **changes)
    return caught.value.code


def made(leaf: bytes = GOOD, *issuers: Authority, **changes: Any) -> tuple[Sequence[bytes], dict[str, Any]]:
    chain = [leaf, *(der(one.certificate) for one in issuers or (MIDDLE,))]
    return chain, {"ek": TPM.ek.public, "roots": [MAKER.certificate], **changes}


def refused_made(leaf: bytes = GOOD, *issuers: Authority, **changes: Any) -> str:
    chain, arguments = made(leaf, *issuers, **changes)
    return refused(chain, **arguments)


def test_the_chain_of_a_recorded_tpm_verifies() -> None:
    found = verified()
    assert (found.tpm.manufacturer, found.tpm.model) == ("IBM", "swtpm")
    assert found.label == "IBM swtpm, root CN=swtpm-localca-rootca"


@pytest.mark.parametrize("name", ["ek-rsa", "ek-ecc"])
def test_real_certificates_of_a_maker_verify(name: str) -> None:
    """Google's virtual TPM: empty subject, critical alternative name, its intermediate from the store's files."""
    certificate = real(name)
    found = verified(
        [der(certificate)],
        ek=ek_public(certificate.public_key()),
        roots=[real("root")],
        intermediates=[real("intermediate")],
    )
    assert (found.tpm.manufacturer, found.tpm.model, found.tpm.version) == ("GOOG", "vTPM", "id:20160511")
    assert found.label.startswith("Google (GOOG) vTPM, root CN=tpm_ek_v1_cloud_host_root-signer-0")
    assert len(found.label) <= 160


def test_a_real_certificate_of_the_same_authority_for_a_key_that_signs() -> None:
    """Purpose and names are those of an endorsement certificate, the key usage is not."""
    certificate = real("ak-rsa")
    code = refused(
        [der(certificate)],
        ek=ek_public(certificate.public_key()),
        roots=[real("root")],
        intermediates=[real("intermediate")],
    )
    assert code == "EK_CERTIFICATE_PROFILE"


def test_a_real_certificate_without_the_profile() -> None:
    certificate = real("other-ca-rsa")
    chain = x509.load_pem_x509_certificates((REAL / "other-ca-chain.pem").read_bytes())
    code = refused([der(certificate)], ek=ek_public(certificate.public_key()), roots=chain)
    assert code == "EK_CERTIFICATE_PROFILE"


def test_an_issuer_may_be_configured_as_root() -> None:
    assert verified([LEAF], roots=[ISSUER]).root == ISSUER


def test_issuers_may_lie_in_the_store_or_come_along() -> None:
    chain, arguments = made()
    assert verified(chain, **arguments).root == MAKER.certificate
    assert verified(chain[:1], **arguments, intermediates=[MIDDLE.certificate]).root == MAKER.certificate


@pytest.mark.parametrize("certificates", [(), (b"no certificate",)])
def test_without_roots_nothing_is_checked(certificates: tuple[bytes, ...]) -> None:
    assert verify_ek_certificate(EK, certificates, roots=(), now=NOW) is None


def test_step_1_no_certificate() -> None:
    """A firmware TPM without one is enrolled by its key, where no roots are demanded."""
    assert refused(()) == "EK_CERTIFICATE_MISSING"


@pytest.mark.parametrize(
    "certificates",
    [
        pytest.param((b"",), id="nothing"),
        pytest.param((LEAF[:-1],), id="cut off"),
        pytest.param((LEAF, b"x"), id="an issuer that is none"),
        pytest.param((LEAF + b"\x00",), id="a byte behind it"),
        pytest.param((b"\x30" * (MAX_CERTIFICATE_BYTES + 1),), id="too large"),
    ],
)
def test_step_2_a_certificate_that_cannot_be_read(certificates: tuple[bytes, ...]) -> None:
    assert refused(certificates) == "EK_CERTIFICATE_MALFORMED"


def test_step_2_a_key_that_cannot_be_read() -> None:
    """The object identifier of the key's algorithm is one that nobody knows."""
    rsa_encryption = bytes.fromhex("06092a864886f70d010101")
    unknown = bytes.fromhex("06092a864886f70d01017f")
    assert refused((LEAF.replace(rsa_encryption, unknown, 1), ISSUER_DER)) == "EK_CERTIFICATE_MALFORMED"


def test_step_2_a_second_encoding_of_the_signature() -> None:
    """The bit string says that its last bit is unused, which is zero anyway in half of all signatures."""
    for _unused in range(64):
        leaf = der(MIDDLE.issue("", TPM_KEY, ek_extensions()))
        if leaf[-1] & 1 == 0:
            break
    unused_bits = leaf.rindex(b"\x00\x30")
    assert refused_made(leaf[:unused_bits] + b"\x01" + leaf[unused_bits + 1 :]) == "EK_CERTIFICATE_MALFORMED"


def test_step_3_certificate_of_another_tpm() -> None:
    """S4: a genuine certificate, but for somebody else's key."""
    assert refused(ek=SoftTpm().ek.public) == "EK_CERTIFICATE_MISMATCH"


def test_step_3_a_key_named_for_oaep_alone_is_the_same_key() -> None:
    """Built from RFC 4055 with an own root: the form of older makers, which key parsers refuse."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    leaf = MIDDLE.issue_oaep("", key)
    chain, arguments = made(leaf, ek=ek_public(key))
    assert verified(chain, **arguments).tpm.label == "Infineon (IFX) SLB9670"
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    assert refused(chain, **{**arguments, "ek": ek_public(other)}) == "EK_CERTIFICATE_MISMATCH"
    damaged = bytearray(leaf)
    damaged[-1] ^= 1
    assert refused_made(bytes(damaged), ek=ek_public(key)) == "EK_CERTIFICATE_UNTRUSTED"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"constraints": None}, id="no basic constraints"),
        pytest.param({"constraints": x509.BasicConstraints(ca=True, path_length=None)}, id="an authority"),
        pytest.param({"usage": None}, id="no key usage"),
        pytest.param({"usage": key_usage("digital_signature")}, id="a key that signs"),
        pytest.param({"purpose": None}, id="no purpose"),
        pytest.param(
            {"purpose": x509.ExtendedKeyUsage([x509.ObjectIdentifier("2.23.133.8.3")])}, id="the purpose of an AK"
        ),
        pytest.param({"name": None}, id="no alternative name"),
        pytest.param({"name": x509.SubjectAlternativeName([x509.DNSName("tpm")])}, id="the name of a host"),
        pytest.param({"name": tpm_name(manufacturer=None)}, id="no manufacturer"),
        pytest.param({"name": tpm_name(model=None)}, id="no model"),
        pytest.param({"name": tpm_name(version=None)}, id="no version"),
        pytest.param({"name": tpm_name(manufacturer="IFX")}, id="a manufacturer that is no number"),
        pytest.param({"name": tpm_name(manufacturer="id:4946580")}, id="a manufacturer of seven digits"),
        pytest.param({"name": tpm_name(manufacturer="id:4946580g")}, id="a manufacturer of other letters"),
        pytest.param(
            {"other": x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")},
            id="a critical extension that nobody knows",
        ),
    ],
)
def test_step_4_a_certificate_that_was_not_made_for_an_endorsement_key(changes: dict[str, Any]) -> None:
    leaf = der(MIDDLE.issue("", TPM_KEY, ek_extensions(**changes)))
    assert refused_made(leaf) == "EK_CERTIFICATE_PROFILE"


@pytest.mark.parametrize(
    ("number", "label"),
    [
        pytest.param("id:494E5443", "Intel (INTC) SLB9670", id="Intel"),
        pytest.param("id:53544D20", "STMicroelectronics (STM) SLB9670", id="STMicroelectronics, with its blank"),
        pytest.param("id:4E544300", "Nuvoton (NTC) SLB9670", id="Nuvoton, with its zero"),
        pytest.param("id:414D4400", "AMD SLB9670", id="AMD"),
        pytest.param("id:51515151", "QQQQ SLB9670", id="letters of nobody"),
        pytest.param("id:00000001", "id:00000001 SLB9670", id="no letters"),
        pytest.param("id:22222222", "id:22222222 SLB9670", id="quotes for letters"),
    ],
)
def test_manufacturers_are_readable(number: str, label: str) -> None:
    leaf = der(MIDDLE.issue("", TPM_KEY, ek_extensions(name=tpm_name(manufacturer=number))))
    chain, arguments = made(leaf)
    assert verified(chain, **arguments).tpm.label == label


def test_a_label_is_safe_to_write_down() -> None:
    """A maker's text goes into the site's YAML and onto terminals."""
    odd = tpm_name(model='"\n\\{{ x }}\x1b[31m' + "m" * 100)
    maker = Authority.root("Root\\\"\\'\u00e9 CA")
    leaf = der(maker.issue("", TPM_KEY, ek_extensions(name=odd)))
    label = verified([leaf], ek=TPM.ek.public, roots=[maker.certificate]).label
    assert label.isascii()
    assert label.isprintable()
    assert not set(label) & set('"\\{}%#')
    assert len(label) <= 160


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("Xylem", "CN=Xylem", id="a name that says nothing odd"),
        pytest.param("a{b}%c\x7f\u00e9", "CN=a?b??c??", id="what YAML, templates and terminals mind"),
    ],
)
def test_a_label_tells_the_roots_name_letter_by_letter(name: str, told: str) -> None:
    maker = Authority.root(name)
    leaf = der(maker.issue("", TPM_KEY, ek_extensions()))
    assert verified([leaf], ek=TPM.ek.public, roots=[maker.certificate]).label == f"Infineon (IFX) SLB9670, root {told}"


def test_a_label_tells_96_letters_of_a_root() -> None:
    """A root whose name has two parts of the greatest length."""
    certified = verified()
    names = [(x509.NameOID.COMMON_NAME, "c" * 64), (x509.NameOID.ORGANIZATION_NAME, "o" * 64)]
    long = x509.Name([x509.NameAttribute(kind, text) for kind, text in names])
    builder = x509.CertificateBuilder().subject_name(long).issuer_name(long).public_key(MAKER.key.public_key())
    dated = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    root = dated.sign(MAKER.key, hashes.SHA256())
    assert CertifiedKey(tpm=certified.tpm, root=root).label == f"IBM swtpm, root {long.rfc4514_string()[:96]}"


@pytest.mark.parametrize(
    "dates",
    [
        pytest.param({"last": NOW - timedelta(seconds=1)}, id="ended"),
        pytest.param({"first": NOW + timedelta(seconds=1)}, id="not begun"),
    ],
)
def test_step_5_dates(dates: dict[str, datetime]) -> None:
    assert refused_made(der(MIDDLE.issue("", TPM_KEY, ek_extensions(), **dates))) == "EK_CERTIFICATE_EXPIRED"


@pytest.mark.parametrize("dates", [{"first": NOW}, {"last": NOW}], ids=["from this second on", "to this second"])
def test_step_5_both_ends_belong_to_it(dates: dict[str, datetime]) -> None:
    chain, arguments = made(der(MIDDLE.issue("", TPM_KEY, ek_extensions(), **dates)))
    assert verified(chain, **arguments).root == MAKER.certificate


def test_step_5_the_recorded_certificate_is_not_valid_yet() -> None:
    assert refused(now=datetime(2026, 11, 1, tzinfo=UTC)) == "EK_CERTIFICATE_EXPIRED"


def test_step_6_the_issuer_is_missing() -> None:
    assert refused((LEAF,)) == "EK_CERTIFICATE_UNTRUSTED"


def test_step_6_an_issuer_of_the_same_name_with_another_key() -> None:
    assert refused_made(GOOD, MAKER.below(MIDDLE.name)) == "EK_CERTIFICATE_UNTRUSTED"


def _named_as_the_issuer(key: Any, *, renamed: bool = False) -> x509.Certificate:
    """Return an authority of the issuer's name over ``key``; ``renamed``: of a kind that nobody knows."""
    name = MIDDLE.certificate.subject
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = builder.serial_number(9).not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    data = der(dated.add_extension(constraints, critical=True).sign(MIDDLE.key, hashes.SHA256()))
    return x509.load_der_x509_certificate(data.replace(ED25519, NOBODYS) if renamed else data)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_named_as_the_issuer(ed25519.Ed25519PrivateKey.generate()), id="another kind"),
        pytest.param(_named_as_the_issuer(x25519.X25519PrivateKey.generate()), id="a kind that signs nothing"),
        pytest.param(
            _named_as_the_issuer(ed25519.Ed25519PrivateKey.generate(), renamed=True), id="a kind that nobody knows"
        ),
        pytest.param(MAKER.below(MIDDLE.name).certificate, id="the same kind"),
        pytest.param(Authority.root("somebody else").certificate, id="another name"),
    ],
)
def test_step_6_an_authority_with_another_key_does_not_hide_the_issuer(other: x509.Certificate) -> None:
    """Whoever answers sends what he likes beside it."""
    chain, arguments = made()
    for given_chain, intermediates in (((chain[0], der(other), chain[1]), ()), (chain, (other,))):
        assert verified(given_chain, **arguments, intermediates=intermediates).root == MAKER.certificate


def test_step_7_a_root_of_the_same_name_with_another_key() -> None:
    assert refused(roots=[Authority.root("swtpm-localca-rootca").certificate]) == "EK_CERTIFICATE_UNTRUSTED"


@pytest.mark.parametrize(
    ("extensions", "dates"),
    [
        pytest.param({"constraints": x509.BasicConstraints(ca=False, path_length=None)}, {}, id="no authority"),
        pytest.param({"constraints": None}, {}, id="it does not say what it is"),
        pytest.param({"usage": key_usage("digital_signature")}, {}, id="it may not sign certificates"),
        pytest.param({}, {"last": NOW - timedelta(seconds=1)}, id="it has ended"),
    ],
)
def test_step_7_an_issuer_that_must_not_issue(extensions: dict[str, Any], dates: dict[str, datetime]) -> None:
    """Whoever has some certificate of the maker could issue endorsement certificates otherwise."""
    middle = MAKER.below("middle", {**authority_extensions(), **extensions}, **dates)
    leaf = der(middle.issue("", TPM_KEY, ek_extensions()))
    assert refused_made(leaf, middle) == "EK_CERTIFICATE_UNTRUSTED"


def test_step_7_an_issuer_need_not_say_what_its_key_is_for() -> None:
    """RFC 5280, 4.2.1.3: without the extension there is no such bound."""
    middle = MAKER.below("middle", {**authority_extensions(), "usage": None})
    chain, arguments = made(der(middle.issue("", TPM_KEY, ek_extensions())), middle)
    assert verified(chain, **arguments).root == MAKER.certificate


@pytest.mark.parametrize(("authorities", "deep"), [(9, False), (10, True)])
def test_step_7_nine_authorities_below_a_root_and_no_more(authorities: int, deep: bool) -> None:
    ladder = [MAKER]
    for number in range(authorities):
        ladder.append(ladder[-1].below(f"level {number}"))
    leaf = der(ladder[-1].issue("", TPM_KEY, ek_extensions()))
    if deep:
        assert refused_made(leaf, *ladder[1:]) == "EK_CERTIFICATE_UNTRUSTED"
    else:
        chain, arguments = made(leaf, *ladder[1:])
        assert verified(chain, **arguments).root == MAKER.certificate


def test_step_7_what_the_library_says_of_long_names_is_cut() -> None:
    middle = MAKER.below("m" * 64, {**authority_extensions(), "constraints": None})
    chain, arguments = made(der(middle.issue("", TPM_KEY, ek_extensions())), middle)
    with pytest.raises(Refusal) as caught:
        verified(chain, **arguments)
    said = caught.value.message.partition("configured root, got ")[2]
    assert caught.value.__cause__ is not None
    assert said == str(caught.value.__cause__)[:200] != str(caught.value.__cause__)


def test_step_7_an_endorsement_certificate_issues_nothing() -> None:
    """The owner of a genuine TPM uses its certificate as an authority."""
    first = Authority("tpm")
    first.certificate = MIDDLE.issue("tpm", first.key.public_key(), ek_extensions())
    leaf = der(first.issue("", TPM_KEY, ek_extensions()))
    assert refused_made(leaf, first, MIDDLE) == "EK_CERTIFICATE_UNTRUSTED"


def test_step_7_an_authority_deeper_than_allowed() -> None:
    """The upper one allows no authority below it, so the lower one's certificates count for nothing."""
    upper = MAKER.below("upper", authority_extensions(path_length=0))
    lower = upper.below("lower")
    good, bad = (der(one.issue("", TPM_KEY, ek_extensions())) for one in (upper, lower))
    chain, arguments = made(good, upper)
    assert verified(chain, **arguments).root == MAKER.certificate
    assert refused_made(bad, lower, upper) == "EK_CERTIFICATE_UNTRUSTED"


@given(st.integers(min_value=0, max_value=len(GOOD) * 8 - 1))
def test_any_changed_bit_of_the_certificate_is_a_refusal(bit: int) -> None:
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    assert refused_made(bytes(changed)).startswith("EK_CERTIFICATE_")


@given(st.binary(max_size=300))
def test_foreign_bytes_are_malformed(data: bytes) -> None:
    assert refused_made(data) == "EK_CERTIFICATE_MALFORMED"


def test_a_chain_is_a_further_check() -> None:
    """An enrolled TPM without a certificate is refused where roots are configured."""
    exchange = Exchange()
    with pytest.raises(Refusal) as caught:
        exchange.run(demands=Demands(ek_roots=(ROOT,)))
    assert caught.value.code == "EK_CERTIFICATE_MISSING"


def test_a_certified_and_enrolled_machine_is_marked_as_certified() -> None:
    exchange = Exchange()
    leaf = MIDDLE.issue("tpm", exchange.tpm.ek.public.key(), ek_extensions())
    challenge, record = exchange.challenged(ek_certificates=(der(leaf),))
    demands = Demands(ek_roots=(MAKER.certificate,), ek_intermediates=(MIDDLE.certificate,))
    node = exchange.verified(exchange.answered(challenge), record, demands=demands)
    assert node.machine.ek_certified
    assert node.machine.certified is not None
    assert node.machine.certified.label == "Infineon (IFX) SLB9670, root CN=Maker Root CA"


def test_a_chain_is_no_substitute_for_enrolment() -> None:
    """S3: a genuine and certified TPM that nobody enrolled stays unknown."""
    exchange = Exchange()
    exchange.tpm = SoftTpm(exchange.boot.pcrs)
    leaf = MAKER.issue("tpm", exchange.tpm.ek.public.key(), ek_extensions())
    challenge, record = exchange.challenged(ek_certificates=(der(leaf),))
    given_answer = exchange.answered(challenge)
    with pytest.raises(PolicyError) as caught:
        exchange.verified(given_answer, record, demands=Demands(ek_roots=(MAKER.certificate,)))
    assert caught.value.code == "IDENTITY_UNKNOWN"
