# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S32: collateral from before a revocation or a fix, served again by whoever carries it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp import (
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
    id="S32",
    title="Stale collateral",
    case="revocation lists and TCB information held back; verification only, not proven on hardware",
    bed="bytes",
    stops=(
        ("evidence/sev_snp.py step 2", "TEE_COLLATERAL_EXPIRED"),
        ("evidence/sev_snp.py step 2", "TEE_KEY_REVOKED"),
        ("evidence/tdx.py step 2", "TEE_COLLATERAL_EXPIRED"),
        ("evidence/tdx.py step 2", "TEE_KEY_REVOKED"),
    ),
)

KEY, EXCHANGE = b"k" * 32, b"q" * 32
REAL = ROOT / "tests" / "vectors" / "tdx"


def test_a_built_revocation_list_of_sev_snp() -> None:
    """The new list revokes; the old one does not, and is refused from its next update on."""
    family = snp.Family()
    bound = TeeBinding(variant="sev-snp", key=KEY, qualifying_data=EXCHANGE).report_data()
    evidence = family.evidence(bound, KEY)
    policy = SnpPolicy(
        measurements=frozenset({snp.MEASUREMENT}), keys=frozenset({key_name(KEY)}), minimum_tcb=TcbVersion()
    )

    def judge(**known: Any) -> object:
        return verify_snp_report(evidence, qualifying_data=EXCHANGE, policy=policy, **known)

    old, new = family.collateral(days=10), family.collateral(days=30, revoked=6)
    assert judge(collateral=old, now=snp.NOW + timedelta(days=9))
    assert code_of(lambda: judge(collateral=old, now=snp.NOW + timedelta(days=11))) == "TEE_COLLATERAL_EXPIRED"
    assert code_of(lambda: judge(collateral=new, now=snp.NOW)) == "TEE_KEY_REVOKED"


def test_real_and_built_collateral_of_tdx() -> None:
    """Intel's own of June 2025 is good until the second before its next update, and not a second after it."""
    quote = TdxEvidence(quote=(REAL / "up-to-date" / "quote.bin").read_bytes(), key=KEY)
    published = (REAL / "up-to-date" / "collateral.json").read_bytes()
    real = load_tdx_collateral(collateral=published, root=(REAL / "intel-root.der").read_bytes())
    policy = TdxPolicy(
        measurements={0: frozenset({tdx.REGISTERS[0]})},
        keys=frozenset({key_name(KEY)}),
        dynamic_platform=True,
        cached_keys=True,
    )

    def judge(evidence: TdxEvidence, **known: Any) -> object:
        return verify_tdx_quote(evidence, qualifying_data=EXCHANGE, policy=policy, **known)

    ends = datetime(2025, 7, 19, 10, 0, 35, tzinfo=UTC)
    early, late = (ends + timedelta(seconds=number) for number in (-1, 1))
    assert code_of(lambda: judge(quote, collateral=real, now=early)) == "BINDING_MISMATCH"  # all but the exchange
    assert code_of(lambda: judge(quote, collateral=real, now=late)) == "TEE_COLLATERAL_EXPIRED"

    maker = tdx.Maker()
    bound = TeeBinding(variant="tdx", key=KEY, qualifying_data=EXCHANGE).report_data()
    evidence = maker.evidence(bound, KEY)
    assert judge(evidence, collateral=maker.collateral(), now=tdx.NOW)
    assert code_of(lambda: judge(evidence, collateral=maker.collateral(revoked=3), now=tdx.NOW)) == "TEE_KEY_REVOKED"
