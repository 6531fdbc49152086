# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S31: a quote of a confidential guest of which half is verified: field by field, in real samples and built ones."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp import (
    SnpCollateral,
    SnpEvidence,
    SnpPolicy,
    verify_snp_report,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp_report import TcbVersion
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tdx import (
    TdxEvidence,
    TdxPolicy,
    load_tdx_collateral,
    verify_tdx_quote,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tee import TeeBinding, key_name
from ansible_collections.attested.kubernetes.tests.support import snp, tdx
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

THREAT = Threat(
    id="S31",
    title="TEE quote half-verified",
    case="CVE-2026-22696; verification only, not proven on hardware",
    bed="bytes",
    stops=(
        ("evidence/sev_snp.py step 2", "TEE_CHAIN_UNTRUSTED"),
        ("evidence/sev_snp.py step 6", "TEE_DEBUG"),
        ("evidence/sev_snp.py step 6", "TEE_VMPL"),
        ("evidence/sev_snp.py step 7", "TEE_TCB_TOO_OLD"),
        ("evidence/sev_snp.py step 5", "TEE_CERTIFICATE_MISMATCH"),
        ("evidence/sev_snp.py step 9", "BINDING_MISMATCH"),
        ("evidence/tdx.py step 3", "TEE_QE_IDENTITY"),
        ("evidence/tdx.py step 3", "TEE_SIGNATURE"),
    ),
)

KEY, EXCHANGE = b"k" * 32, b"q" * 32
REAL = ROOT / "tests" / "vectors" / "tdx"
JUNE = datetime(2025, 6, 25, tzinfo=UTC)
FAMILY, MAKER = snp.Family(), tdx.Maker()
SNP_COLLATERAL, TDX_COLLATERAL = FAMILY.collateral(), MAKER.collateral()


def data(variant: str) -> bytes:
    return TeeBinding(variant=variant, key=KEY, qualifying_data=EXCHANGE).report_data()


def judge_snp(evidence: SnpEvidence, collateral: SnpCollateral = SNP_COLLATERAL) -> object:
    policy = SnpPolicy(
        measurements=frozenset({snp.MEASUREMENT}),
        keys=frozenset({key_name(KEY)}),
        minimum_tcb=TcbVersion(bootloader=3, snp=8),
    )
    return verify_snp_report(evidence, qualifying_data=EXCHANGE, policy=policy, collateral=collateral, now=snp.NOW)


def judge_tdx(evidence: TdxEvidence, **changes: object) -> object:
    policy = TdxPolicy(
        measurements={0: frozenset({tdx.REGISTERS[0]})},
        keys=frozenset({key_name(KEY)}),
        dynamic_platform=True,
        cached_keys=True,
    )
    known = {"collateral": TDX_COLLATERAL, "now": tdx.NOW, **changes}
    return verify_tdx_quote(evidence, qualifying_data=EXCHANGE, policy=policy, **known)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"at_008": (snp.POLICY | 1 << 19).to_bytes(8, "little")}, "TEE_DEBUG", id="debug bit"),
        pytest.param({"at_030": b"\x01"}, "TEE_VMPL", id="VMPL"),
        pytest.param({"at_1F0": bytes([2, *snp.TCB[1:]])}, "TEE_TCB_TOO_OLD", id="TCB at launch"),
        pytest.param({"at_180": bytes([2, *snp.TCB[1:]])}, "TEE_CERTIFICATE_MISMATCH", id="TCB reported"),
        pytest.param({"at_1A0": b"c" * 64}, "TEE_CERTIFICATE_MISMATCH", id="chip id"),
        pytest.param({"at_050": b"d" * 64}, "BINDING_MISMATCH", id="report data"),
    ],
)
def test_a_built_report_of_sev_snp_changed_in_one_field(change: dict[str, bytes], code: str) -> None:
    """The processor signs each of these; only looking at the field stops it."""
    assert judge_snp(FAMILY.evidence(data("sev-snp"), KEY))
    assert code_of(lambda: judge_snp(FAMILY.evidence(data("sev-snp"), KEY, **change))) == code


def test_a_built_report_of_sev_snp_under_an_intermediate_of_the_attackers() -> None:
    """Everything below the root is the attacker's and fits together; root and revocation list are the true ones."""
    other = snp.Family()
    evidence, own = other.evidence(data("sev-snp"), KEY), other.collateral()
    assert judge_snp(evidence, own)
    assert code_of(lambda: judge_snp(evidence, replace(SNP_COLLATERAL, ask=own.ask))) == "TEE_CHAIN_UNTRUSTED"


def test_a_built_quote_of_tdx_by_another_enclave() -> None:
    """Its certification is genuine; without its identity anybody's enclave could vouch for any attestation key."""
    assert judge_tdx(MAKER.evidence(data("tdx"), KEY))
    other = MAKER.evidence(data("tdx"), KEY, qe={"mr_signer": b"\x00" * 32})
    assert code_of(lambda: judge_tdx(other)) == "TEE_QE_IDENTITY"


def test_a_real_quote_of_tdx_with_the_real_identity_of_another_enclave() -> None:
    """Both are signed by Intel."""
    quote = TdxEvidence(quote=(REAL / "up-to-date" / "quote.bin").read_bytes(), key=KEY)
    fields = json.loads((REAL / "up-to-date" / "collateral.json").read_bytes())
    root = (REAL / "intel-root.der").read_bytes()
    good = load_tdx_collateral(collateral=json.dumps(fields).encode(), root=root)
    other = json.loads((REAL / "other-enclave.json").read_bytes())
    fields |= {name: text for name, text in other.items() if name.startswith("qe_identity")}
    bad = load_tdx_collateral(collateral=json.dumps(fields).encode(), root=root)
    assert code_of(lambda: judge_tdx(quote, collateral=good, now=JUNE)) == "BINDING_MISMATCH"  # all but the exchange
    assert code_of(lambda: judge_tdx(quote, collateral=bad, now=JUNE)) == "TEE_QE_IDENTITY"
    changed = replace(quote, quote=quote.quote[:200] + b"\x55" + quote.quote[201:])
    assert code_of(lambda: judge_tdx(changed, collateral=good, now=JUNE)) == "TEE_SIGNATURE"
