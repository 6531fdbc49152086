# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S33: a good report of one guest beside the quote of another one's virtual TPM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import verify_evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp import SnpPolicy, verify_snp_report
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp_report import TcbVersion
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tdx import TdxPolicy, verify_tdx_quote
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tee import TeeBinding, key_name
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.tests.support import snp, tdx
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import VerifiedQuote

THREAT = Threat(
    id="S33",
    title="vTPM not tied to the CVM",
    case="quotes swapped between clones; verification only, not proven on hardware",
    bed="bytes",
    stops=(
        ("evidence/sev_snp.py step 9", "BINDING_MISMATCH"),
        ("evidence/tdx.py step 5", "BINDING_MISMATCH"),
    ),
)

KEY, EXCHANGE = b"k" * 32, b"q" * 32
OWN, OTHER = SoftTpm(), SoftTpm()


def quoted(tpm: SoftTpm) -> VerifiedQuote:
    """Return what a virtual TPM proved in the same exchange."""
    evidence = issue(tpm, tpm.ak, qualifying_data=EXCHANGE, pcrs=(0, 4, 7))
    return verify_evidence(evidence, qualifying_data=EXCHANGE)


def data(variant: str, vtpm_ak_name: bytes) -> bytes:
    binding = TeeBinding(variant=variant, key=KEY, qualifying_data=EXCHANGE, vtpm_ak_name=vtpm_ak_name)
    return binding.report_data()


def judge_snp(family: snp.Family, named: bytes, beside: bytes) -> Any:
    policy = SnpPolicy(
        measurements=frozenset({snp.MEASUREMENT}), keys=frozenset({key_name(KEY)}), minimum_tcb=TcbVersion()
    )
    return verify_snp_report(
        family.evidence(data("sev-snp", named), KEY),
        qualifying_data=EXCHANGE,
        policy=policy,
        collateral=family.collateral(),
        now=snp.NOW,
        vtpm_ak_name=beside,
    )


def judge_tdx(maker: tdx.Maker, named: bytes, beside: bytes) -> Any:
    policy = TdxPolicy(measurements={0: frozenset({tdx.REGISTERS[0]})}, keys=frozenset({key_name(KEY)}))
    return verify_tdx_quote(
        maker.evidence(data("tdx", named), KEY),
        qualifying_data=EXCHANGE,
        policy=policy,
        collateral=maker.collateral(),
        now=tdx.NOW,
        vtpm_ak_name=beside,
    )


def test_the_quote_of_another_virtual_tpm_beside_a_built_report() -> None:
    """Both pieces are genuine and fresh; the report names the attestation key that belongs to it."""
    family, maker = snp.Family(), tdx.Maker()
    own, other = quoted(OWN).ak_name, quoted(OTHER).ak_name
    assert judge_snp(family, own, own).identity.binding.vtpm_ak_name == own
    assert judge_tdx(maker, own, own).identity.binding.vtpm_ak_name == own
    for named, beside in ((own, other), (own, b""), (b"", own)):
        assert code_of(lambda named=named, beside=beside: judge_snp(family, named, beside)) == "BINDING_MISMATCH"
        assert code_of(lambda named=named, beside=beside: judge_tdx(maker, named, beside)) == "BINDING_MISMATCH"
