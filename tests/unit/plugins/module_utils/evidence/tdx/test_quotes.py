# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TDX: real quotes with Intel's collateral of their time; the whole with evidence built from the specification.

"Built" in a test's name: quote, chain and collateral are ours, with an own root. Nothing ran on hardware here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, DependencyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence import tdx
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tdx import (
    TdxCollateral,
    TdxEvidence,
    TdxPolicy,
    VerifiedTdxQuote,
    load_tdx_collateral,
    verify_tdx_quote,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tee import TeeBinding, key_name
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey, open_to_key
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.tdx import NOW, REGISTERS, TEE_TCB_SVN, Maker
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("dcap_qvl", reason="the library dcap-qvl (extra tdx) is not installed")

REAL = ROOT / "tests" / "vectors" / "tdx"
INTEL = (REAL / "intel-root.der").read_bytes()
JUNE, OCTOBER = datetime(2025, 6, 25, tzinfo=UTC), datetime(2026, 10, 10, tzinfo=UTC)
EXCHANGE = b"q" * 32
KEY = OneTimeKey.generate()
MAKER, OTHER = Maker(), Maker()
COLLATERAL = MAKER.collateral()
DATA = TeeBinding(variant="tdx", key=KEY.public, qualifying_data=EXCHANGE).report_data()
GOOD = MAKER.evidence(DATA, KEY.public)
ALLOWED = TdxPolicy(
    measurements={number: frozenset({value}) for number, value in REGISTERS.items()},
    keys=frozenset({key_name(KEY.public)}),
    minimum_tee_tcb_svn=TEE_TCB_SVN,
    minimum_evaluation_number=17,
)
SERVER = replace(ALLOWED, dynamic_platform=True, cached_keys=True, minimum_tee_tcb_svn=bytes(16))
"""What the machines of the real quotes are: servers of several sockets."""


def real_collateral(folder: str = "up-to-date", **changes: str) -> TdxCollateral:
    fields = {**json.loads((REAL / folder / "collateral.json").read_bytes()), **changes}
    return load_tdx_collateral(collateral=json.dumps(fields).encode(), root=INTEL)


def real_refused(quote: bytes | None = None, **changes: Any) -> str:
    chosen = (REAL / "up-to-date" / "quote.bin").read_bytes() if quote is None else quote
    arguments: dict[str, Any] = {"policy": SERVER, "collateral": real_collateral(), "now": JUNE, **changes}
    with pytest.raises(AttestedError) as caught:
        tdx.authenticate(chosen, **arguments)
    return caught.value.code


def verified(evidence: TdxEvidence = GOOD, **changes: Any) -> VerifiedTdxQuote:
    arguments: dict[str, Any] = {"qualifying_data": EXCHANGE, "policy": ALLOWED, "collateral": COLLATERAL, "now": NOW}
    return verify_tdx_quote(evidence, **{**arguments, **changes})


def refused(evidence: TdxEvidence = GOOD, **changes: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        verified(evidence, **changes)
    return caught.value.code


def built(**changes: Any) -> TdxEvidence:
    return MAKER.evidence(DATA, KEY.public, **changes)


@pytest.mark.parametrize(("folder", "now"), [("up-to-date", JUNE), ("version-5", OCTOBER)])
def test_a_real_quote_is_genuine(folder: str, now: datetime) -> None:
    """All of Intel's chain and collateral; the report data of these quotes are not ours, so steps 1 to 4."""
    quote = (REAL / folder / "quote.bin").read_bytes()
    report = tdx.authenticate(quote, policy=SERVER, collateral=real_collateral(folder), now=now)
    assert report.td_attributes.hex() == "0000001000000000"
    assert [len(value) for value in report.registers.values()] == [48] * 5


@pytest.mark.parametrize(
    ("now", "code"),
    [
        pytest.param(datetime(2025, 7, 19, 10, 0, 36, tzinfo=UTC), "TEE_COLLATERAL_EXPIRED", id="past the next update"),
        pytest.param(datetime(2025, 6, 19, 9, tzinfo=UTC), "TEE_COLLATERAL_EXPIRED", id="before the first"),
        pytest.param(datetime(2030, 1, 1, tzinfo=UTC), "TEE_COLLATERAL_EXPIRED", id="years later"),
    ],
)
def test_the_clock_moves_over_real_collateral(now: datetime, code: str) -> None:
    """S32: collateral frozen at a good date."""
    assert real_refused(now=now) == code


def test_a_real_identity_of_another_enclave() -> None:
    """CVE-2026-22696: a quoting enclave that is held against no identity, or against another one's.

    This identity is genuine and signed by Intel, but SGX's.
    """
    other = json.loads((REAL / "other-enclave.json").read_bytes())
    changes = {name: text for name, text in other.items() if name.startswith("qe_identity")}
    assert real_refused(collateral=real_collateral(**changes)) == "TEE_QE_IDENTITY"


def test_real_tcb_information_of_another_platform() -> None:
    other = json.loads((REAL / "other-enclave.json").read_bytes())
    changes = {name: text for name, text in other.items() if name.startswith("tcb_info")}
    assert real_refused(collateral=real_collateral(**changes)) == "TEE_CERTIFICATE_MISMATCH"


def test_a_real_quote_under_another_root() -> None:
    """What chains to Intel does not chain to a root of our own, and the other way round."""
    ours = replace(real_collateral(), root=COLLATERAL.root)
    assert real_refused(collateral=ours) in {"TEE_CHAIN_UNTRUSTED", "TEE_QUOTE_REFUSED"}
    assert refused(collateral=replace(COLLATERAL, root=INTEL)) in {"TEE_CHAIN_UNTRUSTED", "TEE_QUOTE_REFUSED"}


def test_a_real_quote_of_an_enclave_that_is_no_trust_domain() -> None:
    assert real_refused((REAL / "sgx-quote.bin").read_bytes()) == "EVIDENCE_MALFORMED"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"dynamic_platform": False}, id="several sockets where they are not allowed"),
        pytest.param({"cached_keys": False}, id="cached keys where they are not allowed"),
        pytest.param({"smt": False}, id="multithreading where it is not allowed"),
        pytest.param({"xfam": frozenset({bytes(8)})}, id="extended features that are not named"),
        pytest.param({"mr_seam": frozenset({bytes(48)})}, id="a TDX module that is not named"),
    ],
)
def test_a_real_platform_that_the_policy_does_not_allow(changes: dict[str, Any]) -> None:
    assert real_refused(policy=replace(SERVER, **changes)) == "TEE_ATTRIBUTES"


def test_a_real_platform_below_the_minimum() -> None:
    assert real_refused(policy=replace(SERVER, minimum_evaluation_number=18)) == "TEE_TCB_TOO_OLD"
    assert real_refused(policy=replace(SERVER, minimum_tee_tcb_svn=b"\x07" + bytes(15))) == "TEE_TCB_TOO_OLD"


def test_any_changed_byte_of_the_signed_part_of_a_real_quote_is_a_refusal() -> None:
    """Header, report, signature, attestation key, quoting enclave; of the certificates the root's copy is not used."""
    quote = (REAL / "up-to-date" / "quote.bin").read_bytes()
    codes = set()
    for offset in [*range(0, 636, 21), *range(636, 1300, 31)]:
        changed = bytearray(quote)
        changed[offset] ^= 1
        codes.add(real_refused(bytes(changed)))
    assert codes <= {"EVIDENCE_MALFORMED", "TEE_SIGNATURE", "TEE_QE_IDENTITY"}


def test_bytes_behind_a_real_quote() -> None:
    quote = (REAL / "up-to-date" / "quote.bin").read_bytes()
    padded = tdx.authenticate(quote + bytes(64), policy=SERVER, collateral=real_collateral(), now=JUNE)
    assert padded.tee_tcb_svn[0] == 6
    assert real_refused(quote + bytes(64) + b"\x01") == "EVIDENCE_MALFORMED"


def test_a_built_quote_verifies_and_secrets_go_to_its_key() -> None:
    found = verified()
    assert (found.report.registers, found.identity.key_sha256) == (REGISTERS, key_name(KEY.public))
    assert open_to_key(found.identity.seal(b"disk key"), key=KEY, binding=DATA) == b"disk key"


def test_a_built_quote_binds_the_virtual_tpm_beside() -> None:
    binding = TeeBinding(variant="tdx", key=KEY.public, qualifying_data=EXCHANGE, vtpm_ak_name=b"ak" * 17)
    evidence = MAKER.evidence(binding.report_data(), KEY.public)
    assert verified(evidence, vtpm_ak_name=b"ak" * 17).identity.binding.vtpm_ak_name == b"ak" * 17
    assert refused(evidence) == "BINDING_MISMATCH"
    assert refused(evidence, vtpm_ak_name=b"xk" * 17) == "BINDING_MISMATCH"


@pytest.mark.parametrize(
    "quote",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x04\x00" + bytes(100), id="a header alone"),
        pytest.param(GOOD.quote[:-1], id="a byte short"),
        pytest.param(GOOD.quote + b"\x01", id="a byte long"),
        pytest.param(bytes(17000), id="too large"),
        pytest.param(b"\x03" + GOOD.quote[1:], id="version 3"),
    ],
)
def test_step_1_a_built_quote_of_another_form(quote: bytes) -> None:
    assert refused(replace(GOOD, quote=quote)) == "EVIDENCE_MALFORMED"


@pytest.mark.parametrize(
    ("evidence", "collateral", "code"),
    [
        pytest.param(GOOD, MAKER.collateral(days=-1), "TEE_COLLATERAL_EXPIRED", id="collateral that has ended"),
        pytest.param(built(pck_days=-1), COLLATERAL, "TEE_COLLATERAL_EXPIRED", id="a processor's key that has ended"),
        pytest.param(GOOD, MAKER.collateral(revoked=3), "TEE_KEY_REVOKED", id="a revoked processor's key"),
        pytest.param(
            GOOD, MAKER.collateral(revoked_by_root=2), "TEE_CHAIN_UNTRUSTED", id="a revoked platform authority"
        ),
        pytest.param(
            GOOD, MAKER.collateral(revoked_by_root=4), "TEE_CHAIN_UNTRUSTED", id="a revoked signer of TCB information"
        ),
        pytest.param(
            GOOD, MAKER.collateral(issuer=OTHER), "TEE_CHAIN_UNTRUSTED", id="TCB information of another maker"
        ),
        pytest.param(
            OTHER.evidence(DATA, KEY.public), COLLATERAL, "TEE_CHAIN_UNTRUSTED", id="a quote of another maker"
        ),
    ],
)
def test_steps_2_and_3_built_chains(evidence: TdxEvidence, collateral: TdxCollateral, code: str) -> None:
    assert refused(evidence, collateral=collateral) == code


@pytest.mark.parametrize(
    "qe",
    [
        pytest.param({"mr_signer": b"\x00" * 32}, id="another signer"),
        pytest.param({"isv_prod_id": b"\x01\x00"}, id="another product"),
        pytest.param({"isv_svn": b"\x03\x00"}, id="an old version"),
        pytest.param({"misc_select": b"\x01\x00\x00\x00"}, id="other selection"),
        pytest.param({"attributes": bytes.fromhex("13000000000000000000000000000000")}, id="a debug enclave"),
        pytest.param({"attributes": bytes.fromhex("01000000000000000000000000000000")}, id="other attributes"),
    ],
)
def test_step_3_a_built_quote_of_another_quoting_enclave(qe: dict[str, bytes]) -> None:
    """CVE-2026-22696: with a genuine processor's key, but an enclave that anybody could have written."""
    assert refused(built(qe=qe)) == "TEE_QE_IDENTITY"


def test_step_3_a_built_quote_of_another_vendor() -> None:
    assert refused(built(vendor=b"v" * 16)) == "TEE_QE_IDENTITY"


def test_step_3_a_built_enclave_that_vouches_for_another_key() -> None:
    assert refused(built(qe={"report_data": b"x" * 64})) == "TEE_SIGNATURE"


def levels(status: str, *, advisory: str | None = None) -> dict[str, Any]:
    info = json.loads(json.loads(COLLATERAL.text)["tcb_info"])
    (level,) = info["tcbLevels"]
    found = {**level, "tcbStatus": status, **({"advisoryIDs": [advisory]} if advisory else {})}
    return {"tcbLevels": [found]}


@pytest.mark.parametrize(
    ("changes", "policy", "code"),
    [
        pytest.param({"tcb": levels("OutOfDate")}, {}, "TEE_TCB_TOO_OLD", id="out of date"),
        pytest.param({"tcb": levels("Revoked")}, {}, "TEE_KEY_REVOKED", id="a revoked level"),
        pytest.param(
            {"tcb": levels("SWHardeningNeeded")}, {}, "TEE_TCB_TOO_OLD", id="hardening needed and not allowed"
        ),
        pytest.param(
            {"tcb": levels("SWHardeningNeeded", advisory="INTEL-SA-1")},
            {
                "statuses": frozenset({"UpToDate", "SWHardeningNeeded"}),
                "rejected_advisories": frozenset({"INTEL-SA-1"}),
            },
            "TEE_TCB_TOO_OLD",
            id="a rejected advisory",
        ),
        pytest.param({"tcb": {"tcbLevels": []}}, {}, "TEE_TCB_TOO_OLD", id="no level"),
        pytest.param({"tcb": {"fmspc": "00906ED50001"}}, {}, "TEE_CERTIFICATE_MISMATCH", id="another platform"),
        pytest.param({"qe": {"id": "QE"}}, {}, "TEE_QE_IDENTITY", id="the identity of SGX's enclave"),
        pytest.param({}, {"minimum_evaluation_number": 18}, "TEE_TCB_TOO_OLD", id="old evaluation data"),
        pytest.param({}, {"minimum_tee_tcb_svn": b"\x06" + bytes(15)}, "TEE_TCB_TOO_OLD", id="an old TDX module"),
    ],
)
def test_step_3_built_tcb_levels(changes: dict[str, Any], policy: dict[str, Any], code: str) -> None:
    assert refused(collateral=MAKER.collateral(**changes), policy=replace(ALLOWED, **policy)) == code


def test_step_3_a_built_level_that_the_policy_allows() -> None:
    allowed = replace(ALLOWED, statuses=frozenset({"UpToDate", "SWHardeningNeeded"}))
    assert verified(collateral=MAKER.collateral(tcb=levels("SWHardeningNeeded")), policy=allowed).report


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"td_attributes": bytes.fromhex("0100001000000000")}, "TEE_DEBUG", id="debugging"),
        pytest.param({"td_attributes": bytes.fromhex("1000001000000000")}, "TEE_ATTRIBUTES", id="profiling"),
        pytest.param({"td_attributes": bytes(8)}, "TEE_ATTRIBUTES", id="no SEPT_VE_DISABLE"),
        pytest.param({"td_attributes": bytes.fromhex("0000003000000000")}, "TEE_ATTRIBUTES", id="migration"),
        pytest.param({"td_attributes": bytes.fromhex("0001001000000000")}, "TEE_ATTRIBUTES", id="a reserved bit"),
        pytest.param({"mr_signer_seam": b"s" * 48}, "TEE_ATTRIBUTES", id="a TDX module of another signer"),
        pytest.param({"seam_attributes": b"\x01" + bytes(7)}, "TEE_ATTRIBUTES", id="a TDX module for debugging"),
        pytest.param({"tee_tcb_svn": bytes([4, 0, 2, *[0] * 13])}, "TEE_TCB_TOO_OLD", id="an old TDX module"),
        pytest.param({"flags": b"\xff\x00\xff"}, "TEE_ATTRIBUTES", id="several sockets"),
        pytest.param({"flags": b"\x00\xff\xff"}, "TEE_ATTRIBUTES", id="cached keys"),
        pytest.param({"report_data": b"d" * 64}, "BINDING_MISMATCH", id="other report data"),
        pytest.param({"mr_td": b"m" * 48}, "TEE_MEASUREMENT", id="another MRTD"),
        pytest.param({"rt_mr0": b"m" * 48}, "TEE_MEASUREMENT", id="another RTMR 0"),
        pytest.param({"rt_mr3": b"m" * 48}, "TEE_MEASUREMENT", id="another RTMR 3"),
    ],
)
def test_a_built_trust_domain_changed_in_one_field(changes: dict[str, Any], code: str) -> None:
    quote = MAKER.quote(**{"report_data": DATA, **changes})
    assert refused(TdxEvidence(quote=quote, key=KEY.public)) == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"keys": frozenset()}, "TEE_KEY_UNKNOWN", id="a key that nobody enrolled"),
        pytest.param({"measurements": {}}, "POLICY_EMPTY", id="no measurements"),
        pytest.param({"measurements": {1: frozenset({REGISTERS[1]})}}, "POLICY_EMPTY", id="measurements without MRTD"),
        pytest.param(
            {"measurements": {0: frozenset({REGISTERS[0]}), 9: frozenset()}},
            "TEE_MEASUREMENT",
            id="a register that does not exist",
        ),
    ],
)
def test_steps_5_and_6_the_policy_of_a_built_quote(changes: dict[str, Any], code: str) -> None:
    assert refused(policy=replace(ALLOWED, **changes)) == code


def test_a_built_quote_for_another_exchange() -> None:
    assert refused(qualifying_data=b"x" * 32) == "BINDING_MISMATCH"


def test_evidence_of_one_variant_is_none_of_the_other() -> None:
    """The report data name the variant."""
    binding = TeeBinding(variant="sev-snp", key=KEY.public, qualifying_data=EXCHANGE)
    assert refused(MAKER.evidence(binding.report_data(), KEY.public)) == "BINDING_MISMATCH"


@pytest.mark.parametrize("days", [19, 21])
def test_the_clock_moves_over_built_collateral(days: int) -> None:
    now = NOW + timedelta(days=days)
    if days < 20:
        assert verified(now=now).report
    else:
        assert refused(now=now) == "TEE_COLLATERAL_EXPIRED"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b"\xff", id="not UTF-8"),
        pytest.param(b" " * ((1 << 20) + 1), id="too large"),
        pytest.param(COLLATERAL.text.replace("nextUpdate", "other").encode(), id="no next update"),
        pytest.param(COLLATERAL.text.replace('"root_ca_crl": "30', '"root_ca_crl": "31').encode(), id="no list"),
    ],
)
def test_collateral_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(AttestedError) as caught:
        load_tdx_collateral(collateral=data, root=INTEL)
    assert caught.value.code == "TEE_COLLATERAL_MALFORMED"


def test_a_revocation_list_of_a_version_that_does_not_exist() -> None:
    """Found by changing collateral at random: the X.509 library has an error of its own kind for it."""
    fields = json.loads(COLLATERAL.text)
    fields["pck_crl"] = fields["pck_crl"].replace("020101", "020103", 1)
    with pytest.raises(AttestedError) as caught:
        load_tdx_collateral(collateral=json.dumps(fields).encode(), root=INTEL)
    assert caught.value.code == "TEE_COLLATERAL_MALFORMED"


def test_words_of_the_library_that_nobody_knows_are_a_refusal() -> None:
    assert tdx._refused("something new").code == "TEE_QUOTE_REFUSED"


def test_without_the_library_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dcap_qvl", None)
    with pytest.raises(DependencyError) as caught:
        verified()
    assert caught.value.code == "DEPENDENCY_MISSING"


def test_another_type_of_certification_data_is_refused_though_nobody_signs_it() -> None:
    changed = bytearray(GOOD.quote)
    changed[636 + 128] ^= 1
    assert refused(replace(GOOD, quote=bytes(changed))) == "EVIDENCE_MALFORMED"


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=(636 + 128 + 6 + 384 + 64 + 34) * 8 - 1))
def test_any_changed_bit_of_the_signed_part_of_a_built_quote_is_a_refusal(bit: int) -> None:
    changed = bytearray(GOOD.quote)
    changed[bit // 8] ^= 1 << bit % 8
    assert refused(replace(GOOD, quote=bytes(changed))) in {
        "EVIDENCE_MALFORMED",
        "TEE_QE_IDENTITY",
        "TEE_QUOTE_REFUSED",
        "TEE_SIGNATURE",
    }


def test_every_step_is_announced_once_and_in_order() -> None:
    numbers: list[int] = []
    verified(reached=numbers.append)
    assert numbers == list(range(1, len(tdx.STEPS) + 1))
