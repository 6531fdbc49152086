# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SEV-SNP: real reports as far as their collateral goes; the whole with evidence built from the specification.

"Built" in a test's name: reports, chain and revocation list are ours, with an own root. Nothing ran on hardware here.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence import sev_snp
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp import (
    SnpCollateral,
    SnpEvidence,
    SnpPolicy,
    VerifiedSnpReport,
    load_snp_collateral,
    verify_snp_report,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp_report import SnpReport, TcbVersion
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tee import TeeBinding, key_name
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey, open_to_key
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.snp import (
    AMD,
    CHIP,
    MEASUREMENT,
    NOW,
    POLICY,
    TCB,
    Family,
    extensions,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

REAL = ROOT / "tests" / "vectors" / "sev-snp"
EXCHANGE = b"q" * 32
KEY = OneTimeKey.generate()
FAMILY, OTHER = Family(), Family()
COLLATERAL = FAMILY.collateral()
DATA = TeeBinding(variant="sev-snp", key=KEY.public, qualifying_data=EXCHANGE).report_data()
GOOD = FAMILY.evidence(DATA, KEY.public)
PSS_OID = bytes.fromhex("06092a864886f70d01010a")
BY_NO_NAME = COLLATERAL.crl.public_bytes(serialization.Encoding.DER).replace(b"\x0c\x07ARK-Own", b"\x03\x07\x00RK-Own")
UNREADABLE = replace(COLLATERAL, crl=x509.load_der_x509_crl(BY_NO_NAME))
CROSS_SIGNED = replace(
    COLLATERAL, ark=FAMILY.certificate("ARK-Own", "ARK-Other", FAMILY.ark_key.public_key(), OTHER.ark_key)
)
ALLOWED = SnpPolicy(
    measurements=frozenset({MEASUREMENT}),
    keys=frozenset({key_name(KEY.public)}),
    minimum_tcb=TcbVersion(bootloader=3, tee=1, snp=8, microcode=115),
    minimum_guest_svn=2,
)


def verified(evidence: SnpEvidence = GOOD, **changes: Any) -> VerifiedSnpReport:
    arguments: dict[str, Any] = {"qualifying_data": EXCHANGE, "policy": ALLOWED, "collateral": COLLATERAL, "now": NOW}
    return verify_snp_report(evidence, **{**arguments, **changes})


def told(evidence: SnpEvidence = GOOD, **changes: Any) -> tuple[str, str]:
    """Return the code and the sentence of a refusal."""
    with pytest.raises(AttestedError) as caught:
        verified(evidence, **changes)
    return caught.value.code, str(caught.value)


def refused(evidence: SnpEvidence = GOOD, **changes: Any) -> str:
    return told(evidence, **changes)[0]


def built(**changes: Any) -> SnpEvidence:
    return FAMILY.evidence(DATA, KEY.public, **changes)


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


@pytest.mark.parametrize(
    ("folder", "debug", "microcode"),
    [pytest.param("milan", False, 115, id="Milan"), pytest.param("milan-debug", True, 68, id="Milan, with debugging")],
)
def test_a_real_report_is_of_its_chip_and_chain(folder: str, debug: bool, microcode: int) -> None:
    """Steps 1, 3, 4 and 5 with AMD's own keys; there is no revocation list of that time, so not the whole."""
    ask, ark = x509.load_pem_x509_certificates((REAL / "milan" / "chain.pem").read_bytes())
    collateral = SnpCollateral(ark=ark, ask=ask, crl=COLLATERAL.crl)
    report = SnpReport.parse((REAL / folder / "report.bin").read_bytes())
    data = (REAL / folder / "vcek.der").read_bytes()
    certificate, key = sev_snp._signing_certificate(data, collateral, datetime(2025, 1, 1, tzinfo=UTC))
    sev_snp._verify_signature(report, key)
    sev_snp._verify_platform(report, certificate)
    assert (report.debug, report.vmpl, report.reported_tcb.microcode) == (debug, 0, microcode)


def test_a_real_report_under_the_certificate_of_another_chip() -> None:
    report = SnpReport.parse((REAL / "milan" / "report.bin").read_bytes())
    other = x509.load_der_x509_certificate((REAL / "milan-debug" / "vcek.der").read_bytes())
    with pytest.raises(Refusal) as caught:
        sev_snp._verify_signature(report, other.public_key())
    assert caught.value.code == "TEE_SIGNATURE"


def test_a_real_guest_with_debugging_is_refused() -> None:
    report = SnpReport.parse((REAL / "milan-debug" / "report.bin").read_bytes())
    with pytest.raises(Refusal) as caught:
        sev_snp._verify_guest(report, ALLOWED)
    assert caught.value.code == "TEE_DEBUG"


@pytest.mark.parametrize("folder", ["milan", "milan-debug"])
def test_any_changed_byte_of_a_real_report_is_a_refusal(folder: str) -> None:
    data = (REAL / folder / "report.bin").read_bytes()
    key = x509.load_der_x509_certificate((REAL / folder / "vcek.der").read_bytes()).public_key()
    for offset in range(0, len(data), 7):
        changed = bytearray(data)
        changed[offset] ^= 0x80
        with pytest.raises(Refusal) as caught:
            sev_snp._verify_signature(SnpReport.parse(bytes(changed)), key)
        assert caught.value.code in {"EVIDENCE_MALFORMED", "TEE_SIGNATURE"}


def test_a_built_report_verifies_and_secrets_go_to_its_key() -> None:
    found = verified()
    assert (found.product, found.report.chip_id, found.identity.key_sha256) == (
        "Milan-B0",
        CHIP,
        key_name(KEY.public),
    )
    box = found.identity.seal(b"disk key")
    assert open_to_key(box, key=KEY, binding=DATA) == b"disk key"
    for other in ({"key": OneTimeKey.generate(), "binding": DATA}, {"key": KEY, "binding": b"x" * 64}):
        with pytest.raises(Refusal) as caught:
            open_to_key(box, **other)
        assert caught.value.code == "SEAL_UNOPENABLE"


def test_a_built_report_binds_the_virtual_tpm_beside() -> None:
    """The guest names the attestation key of its virtual TPM; another one, or none, does not match."""
    binding = TeeBinding(variant="sev-snp", key=KEY.public, qualifying_data=EXCHANGE, vtpm_ak_name=b"ak" * 17)
    evidence = FAMILY.evidence(binding.report_data(), KEY.public)
    assert verified(evidence, vtpm_ak_name=b"ak" * 17).identity.binding.vtpm_ak_name == b"ak" * 17
    assert refused(evidence, vtpm_ak_name=b"xk" * 17) == "BINDING_MISMATCH"
    assert refused(evidence) == "BINDING_MISMATCH"


def test_a_built_report_of_a_vlek_where_the_policy_allows_it() -> None:
    evidence = built(certified=extensions(chip=None), at_048=number(1 << 2, 4), at_1A0=bytes(64))
    assert verified(evidence, policy=replace(ALLOWED, vlek=True)).report.signing_key == 1
    assert refused(evidence) == "TEE_ATTRIBUTES"


def test_a_built_report_of_turin() -> None:
    """There the parts of the TCB stand elsewhere, and one more is certified."""
    tcb = bytes([7, 3, 1, 8, 0, 0, 0, 115])
    certified = {**extensions(tcb=bytes([3, 1, 0, 0, 0, 0, 8, 115])), f"{AMD}.3.9": b"\x02\x01\x07"}
    evidence = built(certified=certified, at_188=b"\x1a\x01\x01", at_180=tcb, at_1F0=tcb)
    assert verified(evidence).report.reported_tcb.fmc == 7
    older = replace(ALLOWED, minimum_tcb=TcbVersion(fmc=8))
    assert refused(evidence, policy=older) == "TEE_TCB_TOO_OLD"


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(GOOD.report[:-1], id="a byte short"),
        pytest.param(GOOD.report + b"\x00", id="a byte long"),
        pytest.param(built(at_000=number(1, 4)).report, id="version 1"),
        pytest.param(built(at_000=number(6, 4)).report, id="version 6"),
        pytest.param(built(at_034=number(2, 4)).report, id="another signature algorithm"),
        pytest.param(built(at_008=number(1 << 16, 8)).report, id="a policy without its reserved one"),
        pytest.param(built(at_008=number(POLICY | 1 << 40, 8)).report, id="a policy with a reserved bit"),
        pytest.param(built(at_048=number(1 << 9, 4)).report, id="a reserved flag"),
        pytest.param(built(at_04C=b"\x01").report, id="reserved bytes"),
        pytest.param(built(at_180=bytes([3, 1, 1, 0, 0, 0, 8, 115])).report, id="a reserved byte of the TCB"),
        pytest.param(GOOD.report[:-1] + b"\x01", id="a byte behind the signature"),
    ],
)
def test_step_1_a_built_report_of_another_form(report: bytes) -> None:
    assert refused(replace(GOOD, report=report)) == "EVIDENCE_MALFORMED"


@pytest.mark.parametrize(
    ("collateral", "code"),
    [
        pytest.param(OTHER.collateral(), "TEE_CHAIN_UNTRUSTED", id="another root"),
        pytest.param(replace(COLLATERAL, ark=OTHER.collateral().ark), "TEE_CHAIN_UNTRUSTED", id="another ARK"),
        pytest.param(replace(COLLATERAL, ask=OTHER.collateral().ask), "TEE_CHAIN_UNTRUSTED", id="another ASK"),
        pytest.param(replace(COLLATERAL, ark=COLLATERAL.ask), "TEE_CHAIN_UNTRUSTED", id="a root that is none"),
        pytest.param(CROSS_SIGNED, "TEE_CHAIN_UNTRUSTED", id="a root that somebody else signed"),
        pytest.param(replace(COLLATERAL, crl=OTHER.collateral().crl), "TEE_CHAIN_UNTRUSTED", id="another list"),
        pytest.param(FAMILY.collateral(crl_issuer="SEV-Own"), "TEE_CHAIN_UNTRUSTED", id="a list by another name"),
        pytest.param(UNREADABLE, "TEE_CHAIN_UNTRUSTED", id="a list by no name at all"),
        pytest.param(FAMILY.endless(COLLATERAL), "TEE_COLLATERAL_EXPIRED", id="a list without an end"),
        pytest.param(FAMILY.collateral(revoked=6), "TEE_KEY_REVOKED", id="a revoked intermediate"),
        pytest.param(FAMILY.collateral(days=-1 + 1), "TEE_COLLATERAL_EXPIRED", id="a list that ends this instant"),
        pytest.param(FAMILY.collateral(ark_days=-1), "TEE_COLLATERAL_EXPIRED", id="a root that has ended"),
        pytest.param(FAMILY.collateral(ask_days=-1), "TEE_COLLATERAL_EXPIRED", id="an intermediate that has ended"),
    ],
)
def test_step_2_built_collateral(collateral: SnpCollateral, code: str) -> None:
    assert refused(collateral=collateral, now=NOW + timedelta(seconds=1)) == code


def test_step_2_another_intermediate_beside_the_root_accepts_no_evidence_of_its_own() -> None:
    """The report, its key and the intermediate fit together; only the root does not know them."""
    own = replace(COLLATERAL, ask=OTHER.collateral().ask)
    assert refused(OTHER.evidence(DATA, KEY.public), collateral=own) == "TEE_CHAIN_UNTRUSTED"


@pytest.mark.parametrize(
    ("collateral", "what"),
    [
        pytest.param(FAMILY.collateral(ark_days=-1), "root", id="the root"),
        pytest.param(FAMILY.collateral(ask_days=-1), "intermediate", id="the intermediate"),
        pytest.param(FAMILY.collateral(days=0), "revocation list", id="the revocation list"),
    ],
)
def test_step_2_it_is_told_what_has_ended(collateral: SnpCollateral, what: str) -> None:
    assert (
        f"expected a {what} valid at 2026-11-22, got one for 2026-1"
        in told(collateral=collateral, now=NOW + timedelta(seconds=1))[1]
    )


@pytest.mark.parametrize(
    "now", [pytest.param(NOW - timedelta(days=1), id="first"), pytest.param(NOW + timedelta(days=30), id="last")]
)
def test_step_2_a_built_list_counts_from_its_first_instant_to_its_last(now: datetime) -> None:
    assert verified(now=now).product == "Milan-B0"


@pytest.mark.parametrize(
    ("days", "code"),
    [(29, None), (31, "TEE_COLLATERAL_EXPIRED"), (-2, "TEE_COLLATERAL_EXPIRED")],
    ids=["before the next update", "past the next update", "before the list was made"],
)
def test_step_2_the_clock_moves_over_built_collateral(days: int, code: str | None) -> None:
    now = NOW + timedelta(days=days)
    if code is None:
        assert verified(now=now).product == "Milan-B0"
    else:
        assert refused(now=now) == code


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        pytest.param(replace(GOOD, certificate=b""), "TEE_COLLATERAL_MALFORMED", id="no certificate"),
        pytest.param(replace(GOOD, certificate=b"0" * 5000), "TEE_COLLATERAL_MALFORMED", id="a large certificate"),
        pytest.param(
            replace(GOOD, certificate=OTHER.evidence(DATA, KEY.public).certificate),
            "TEE_CHAIN_UNTRUSTED",
            id="another family's certificate",
        ),
        pytest.param(built(days=-1), "TEE_COLLATERAL_EXPIRED", id="a certificate that has ended"),
        pytest.param(
            replace(GOOD, certificate=GOOD.certificate.replace(PSS_OID, PSS_OID[:-1] + b"\x7f")),
            "TEE_CHAIN_UNTRUSTED",
            id="a certificate with an algorithm that nobody knows",
        ),
    ],
)
def test_step_3_the_certificate_of_a_built_report(evidence: SnpEvidence, code: str) -> None:
    assert refused(evidence) == code


def sized(size: int) -> SnpEvidence:
    """Return good evidence whose certificate has ``size`` bytes."""
    filler = f"{AMD}.99"
    missing = size - len(built(certified={**extensions(), filler: bytes(2000)}).certificate)
    return built(certified={**extensions(), filler: bytes(2000 + missing)})


def test_step_3_a_built_certificate_has_at_most_four_kibibytes() -> None:
    assert len(sized(4096).certificate) == 4096
    assert verified(sized(4096)).product == "Milan-B0"
    assert refused(sized(4097)) == "TEE_COLLATERAL_MALFORMED"


def test_step_3_a_built_certificate_for_a_key_that_is_no_chips() -> None:
    ask = COLLATERAL.ask.public_bytes(serialization.Encoding.DER)
    signed = FAMILY.certificate("SEV-VCEK", "SEV-Own", FAMILY.ask_key.public_key(), FAMILY.ask_key)
    assert refused(replace(GOOD, certificate=ask)) == "TEE_CHAIN_UNTRUSTED"
    encoded = signed.public_bytes(serialization.Encoding.DER)
    assert refused(replace(GOOD, certificate=encoded)) == "TEE_COLLATERAL_MALFORMED"
    shorter = ec.generate_private_key(ec.SECP256R1()).public_key()
    signed = FAMILY.certificate("SEV-VCEK", "SEV-Own", shorter, FAMILY.ask_key, extensions())
    encoded = signed.public_bytes(serialization.Encoding.DER)
    assert refused(replace(GOOD, certificate=encoded)) == "TEE_COLLATERAL_MALFORMED"


def test_a_built_certificate_or_list_of_a_version_that_does_not_exist() -> None:
    certificate = GOOD.certificate.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1)
    assert refused(replace(GOOD, certificate=certificate)) == "TEE_COLLATERAL_MALFORMED"
    crl = COLLATERAL.crl.public_bytes(serialization.Encoding.DER).replace(b"\x02\x01\x01", b"\x02\x01\x03", 1)
    with pytest.raises(Refusal) as caught:
        load_snp_collateral(chain=(REAL / "milan" / "chain.pem").read_bytes(), crl=crl)
    assert caught.value.code == "TEE_COLLATERAL_MALFORMED"


def test_step_4_a_built_report_with_the_signature_of_another() -> None:
    later = built(at_0C0=b"h" * 32).report
    assert refused(replace(GOOD, report=GOOD.report[:0x2A0] + later[0x2A0:])) == "TEE_SIGNATURE"


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_step_4_a_built_report_with_numbers_that_no_signature_has(byte: bytes) -> None:
    assert refused(replace(GOOD, report=GOOD.report[:0x2A0] + byte * 144 + bytes(368))) == "TEE_SIGNATURE"


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(built(at_180=bytes([2, *TCB[1:]])), id="a TCB that is not certified"),
        pytest.param(built(at_1A0=b"\x01" * 64), id="another chip"),
        pytest.param(built(at_1A0=bytes(64), certified=extensions(chip=bytes(64))), id="a chip id of zeros"),
        pytest.param(built(at_048=number(2, 4)), id="a masked chip key"),
        pytest.param(built(certified=extensions(chip=None)), id="a certificate without chip"),
        pytest.param(built(at_048=number(1 << 2, 4)), id="a VLEK with the certificate of a chip"),
        pytest.param(built(at_048=number(7 << 2, 4), certified=extensions(chip=None)), id="no signing key"),
    ],
)
def test_step_5_a_built_report_of_another_platform(evidence: SnpEvidence) -> None:
    assert refused(evidence, policy=replace(ALLOWED, vlek=True)) == "TEE_CERTIFICATE_MISMATCH"


def test_step_5_a_built_chip_id_in_an_octet_string() -> None:
    """AMD writes it so in some certificates, raw in others."""
    assert verified(built(certified=extensions(chip=b"\x04\x40" + CHIP))).report.chip_id == CHIP


@pytest.mark.parametrize("missing", [f"{AMD}.2", f"{AMD}.3.1", f"{AMD}.3.8"])
def test_step_5_a_built_certificate_without_one_of_its_extensions(missing: str) -> None:
    certified = {oid: value for oid, value in extensions().items() if oid != missing}
    assert refused(built(certified=certified)) == "EVIDENCE_MALFORMED"


@pytest.mark.parametrize(
    ("changes", "policy", "code"),
    [
        pytest.param({"at_008": number(POLICY | 1 << 19, 8)}, {}, "TEE_DEBUG", id="debugging"),
        pytest.param({"at_008": number(POLICY | 1 << 18, 8)}, {}, "TEE_ATTRIBUTES", id="migration"),
        pytest.param({}, {"smt": False}, "TEE_ATTRIBUTES", id="multithreading where it is not allowed"),
        pytest.param({"at_030": number(1, 4)}, {}, "TEE_VMPL", id="VMPL 1"),
        pytest.param({}, {"minimum_tcb": TcbVersion(bootloader=4)}, "TEE_TCB_TOO_OLD", id="an old boot loader"),
        pytest.param({}, {"minimum_tcb": TcbVersion(tee=2)}, "TEE_TCB_TOO_OLD", id="an old TEE"),
        pytest.param({}, {"minimum_tcb": TcbVersion(snp=9)}, "TEE_TCB_TOO_OLD", id="old SNP firmware"),
        pytest.param({}, {"minimum_tcb": TcbVersion(microcode=116)}, "TEE_TCB_TOO_OLD", id="old microcode"),
        pytest.param({"at_1F0": bytes([2, *TCB[1:]])}, {}, "TEE_TCB_TOO_OLD", id="started with an old boot loader"),
        pytest.param({}, {"minimum_guest_svn": 3}, "TEE_TCB_TOO_OLD", id="an old guest"),
        pytest.param({}, {"chip_ids": frozenset({b"c" * 64})}, "TEE_CHIP_UNKNOWN", id="another chip than listed"),
        pytest.param({}, {"keys": frozenset()}, "TEE_KEY_UNKNOWN", id="a key that nobody enrolled"),
        pytest.param({}, {"measurements": frozenset()}, "POLICY_EMPTY", id="a policy without measurements"),
        pytest.param({}, {"measurements": frozenset({b"m" * 48})}, "TEE_MEASUREMENT", id="another measurement"),
        pytest.param({"at_050": b"d" * 64}, {}, "BINDING_MISMATCH", id="other report data"),
    ],
)
def test_steps_6_to_10_of_a_built_report(changes: dict[str, bytes], policy: dict[str, Any], code: str) -> None:
    assert refused(built(**changes), policy=replace(ALLOWED, **policy)) == code


def test_step_6_a_built_report_without_multithreading_where_it_is_not_allowed() -> None:
    assert verified(built(at_008=number(1 << 17, 8)), policy=replace(ALLOWED, smt=False)).report.smt is False


def test_step_7_a_built_report_of_a_chip_that_went_back_since_the_guest_started() -> None:
    """The TCB at launch is good; the one that is reported, and certified, is older."""
    older = bytes([2, *TCB[1:]])
    code, sentence = told(built(at_180=older, certified=extensions(tcb=older)))
    assert (code, "got older versions of bootloader (" in sentence) == ("TEE_TCB_TOO_OLD", True)
    code, sentence = told(policy=replace(ALLOWED, minimum_guest_svn=3))
    assert (code, "got older versions of guest (" in sentence) == ("TEE_TCB_TOO_OLD", True)


def test_a_built_product_name_is_shown_without_what_steers_a_terminal() -> None:
    shown = verified(built(certified={**extensions(), f"{AMD}.2": b"\x16\x06 ~\x1f\x7f\x80A"})).product
    assert shown == " ~???A"


def test_a_chip_of_the_allow_list_is_no_identity() -> None:
    """All guests of a host share its chip: listed or not, the key decides."""
    policy = replace(ALLOWED, chip_ids=frozenset({CHIP}))
    assert verified(policy=policy).report.chip_id == CHIP
    other = OneTimeKey.generate().public
    binding = TeeBinding(variant="sev-snp", key=other, qualifying_data=EXCHANGE)
    assert refused(FAMILY.evidence(binding.report_data(), other), policy=policy) == "TEE_KEY_UNKNOWN"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"qualifying_data": b"x" * 32}, id="another exchange"),
        pytest.param({"vtpm_ak_name": b"ak" * 17}, id="a virtual TPM that the guest does not name"),
    ],
)
def test_a_built_report_for_something_else(changes: dict[str, bytes]) -> None:
    assert refused(**changes) == "BINDING_MISMATCH"


def test_a_report_for_a_key_of_another_length() -> None:
    short = b"k" * 31
    policy = replace(ALLOWED, keys=frozenset({key_name(short)}))
    assert refused(replace(GOOD, key=short), policy=policy) == "BINDING_MALFORMED"


@given(st.integers(min_value=0, max_value=len(GOOD.report) * 8 - 1))
def test_any_changed_bit_of_a_built_report_is_a_refusal(bit: int) -> None:
    changed = bytearray(GOOD.report)
    changed[bit // 8] ^= 1 << bit % 8
    assert refused(replace(GOOD, report=bytes(changed))) in {"EVIDENCE_MALFORMED", "TEE_SIGNATURE"}


def test_collateral_is_read_from_files_of_amd() -> None:
    chain = (REAL / "milan" / "chain.pem").read_bytes()
    crl = COLLATERAL.crl.public_bytes(serialization.Encoding.DER)
    found = load_snp_collateral(chain=chain, crl=crl)
    assert found.ark.subject.rfc4514_string().startswith("CN=ARK-Milan")
    for bad in ({"chain": b"", "crl": crl}, {"chain": chain, "crl": b"x"}, {"chain": chain + chain, "crl": crl}):
        with pytest.raises(Refusal) as caught:
            load_snp_collateral(**bad)
        assert caught.value.code == "TEE_COLLATERAL_MALFORMED"


def test_every_step_is_announced_once_and_in_order() -> None:
    numbers: list[int] = []
    verified(reached=numbers.append)
    assert numbers == list(range(1, len(sev_snp.STEPS) + 1))
