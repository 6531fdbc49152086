# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Appraise files of every variant offline: what passes, at which step a changed one is refused, what a policy needs.

Reports and quotes of SEV-SNP and TDX are built from the specification with an own root; none ran on hardware here.
"""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, PolicyError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence import sev_snp, tdx, tpm2
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.appraisal import (
    METHODS,
    NOT_REACHED,
    PASSED,
    REFUSED,
    Appraisal,
    appraise,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    BindingContext,
    answer,
    new_challenge,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.constellation import (
    STEPS,
    VERIFY_SERVICE_USER_DATA,
    issue_constellation_document,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import VARIANTS
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tee import TeeBinding, key_name
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.tests.support import boots, snp
from ansible_collections.attested.kubernetes.tests.support import tdx as built_tdx
from ansible_collections.attested.kubernetes.tests.support.exchange import (
    CLUSTER_ID,
    NOW,
    SELECTION,
    Exchange,
    learned,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from collections.abc import Mapping

EXCHANGE, KEY, NONCE = b"q" * 32, OneTimeKey.generate(), b"n" * 32
FAMILY, MAKER = snp.Family(), built_tdx.Maker()
BOOT = boots.load("deb13-base")
PROFILE = render_document(render_profile(learned(BOOT))).encode()
TPM = SoftTpm(BOOT.pcrs)


class Case:
    """A good document of one variant with its policy and the files that the policy names."""

    def __init__(self, document: bytes, policy: dict[str, Any], files: Mapping[str, bytes], now: Any = NOW) -> None:
        self.document, self.policy, self.files, self.now = document, policy, files, now

    def appraised(self, document: bytes | None = None, **changes: Any) -> Appraisal:
        policy = {name: value for name, value in {**self.policy, **changes}.items() if value is not None}
        text = json.dumps(policy).encode()
        return appraise(self.document if document is None else document, text, read=self.read, now=self.now)

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise SystemFault(f"cannot read {name}", reason=Reason.FILE_UNUSABLE)
        return self.files[name]


def snp_case() -> Case:
    data = TeeBinding(variant="sev-snp", key=KEY.public, qualifying_data=EXCHANGE).report_data()
    evidence, collateral = FAMILY.evidence(data, KEY.public), FAMILY.collateral()
    pem, der = serialization.Encoding.PEM, serialization.Encoding.DER
    policy = {
        "variant": "sev-snp",
        "exchange": EXCHANGE.hex(),
        "key": KEY.public.hex(),
        "enrolledKeys": [key_name(KEY.public)],
        "measurements": [snp.MEASUREMENT.hex()],
        "minimumTcb": {"bootloader": 3, "tee": 1, "snp": 8, "microcode": 115},
        "minimumGuestSvn": 2,
        "chipIds": [snp.CHIP.hex()],
        "certificate": "vcek.der",
        "chain": "chain.pem",
        "revocations": "crl.der",
    }
    chain = collateral.ask.public_bytes(pem) + collateral.ark.public_bytes(pem)
    files = {"vcek.der": evidence.certificate, "chain.pem": chain, "crl.der": collateral.crl.public_bytes(der)}
    return Case(evidence.report, policy, files, snp.NOW)


def tdx_case() -> Case:
    pytest.importorskip("dcap_qvl", reason="the library dcap-qvl (extra tdx) is not installed")
    data = TeeBinding(variant="tdx", key=KEY.public, qualifying_data=EXCHANGE).report_data()
    evidence, collateral = MAKER.evidence(data, KEY.public), MAKER.collateral()
    policy = {
        "variant": "tdx",
        "exchange": EXCHANGE.hex(),
        "key": KEY.public.hex(),
        "enrolledKeys": [key_name(KEY.public)],
        "measurements": {str(number): [value.hex()] for number, value in built_tdx.REGISTERS.items()},
        "minimumTeeTcbSvn": built_tdx.TEE_TCB_SVN.hex(),
        "minimumEvaluationNumber": 17,
        "collateral": "collateral.json",
        "root": "root.der",
    }
    files = {"collateral.json": collateral.text.encode(), "root.der": collateral.root}
    return Case(evidence.quote, policy, files, built_tdx.NOW)


def constellation_case() -> Case:
    policy = {
        "variant": "qemu-vtpm",
        "insecureConstellationPeer": True,
        "attestationKeys": [TPM.ak.name.hex()],
        "userData": VERIFY_SERVICE_USER_DATA.hex(),
        "nonce": NONCE.hex(),
        "profile": "profile.yml",
    }
    return Case(issue_constellation_document(TPM, TPM.ak, nonce=NONCE), policy, {"profile.yml": PROFILE})


def tpm_case() -> Case:
    machine = Exchange()
    context = BindingContext(purpose=Purpose.VERIFY, cluster_id=CLUSTER_ID, request=machine.logs.to_bytes())
    challenge, _record = new_challenge(machine.request(), selection=SELECTION, random=SystemRandom(), now=NOW)
    given = answer(machine.tpm, challenge, context, ek=machine.tpm.ek, ak=machine.tpm.ak, logs=machine.logs)
    values = {"node": "w-1", "binding": text(given.bound.to_bytes()), "event_logs": text(machine.logs.to_bytes())}
    policy = {
        "variant": "tpm2",
        "purpose": "verify",
        "clusterId": CLUSTER_ID.hex(),
        "challenge": text(challenge.to_bytes()),
        "profile": "profile.yml",
    }
    return Case(json.dumps(values).encode(), policy, {"profile.yml": PROFILE})


def text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


CASES = {"sev-snp": snp_case, "tdx": tdx_case, "qemu-vtpm": constellation_case, "tpm2": tpm_case}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def refused_at(found: Appraisal) -> tuple[int, str]:
    """Return the number of the step that refused, and the code; every step before passed, none after was reached."""
    states = [step.state for step in found.steps]
    number = states.index(REFUSED)
    assert states == [PASSED] * number + [REFUSED] + [NOT_REACHED] * (len(states) - number - 1)
    assert found.error is not None
    assert not found.findings
    return number + 1, found.error.code


def malformed(policy: object) -> str:
    body = policy if isinstance(policy, bytes) else json.dumps(policy).encode()
    with pytest.raises(PolicyError) as caught:
        appraise(b"", body, read=lambda name: b"", now=NOW)
    assert caught.value.code == "MANIFEST_INVALID"
    return str(caught.value)


def test_every_variant_can_be_appraised() -> None:
    assert sorted(METHODS) == sorted(VARIANTS) == sorted(CASES)


def test_a_good_document_passes_every_step(case: Case) -> None:
    found = case.appraised()
    assert found.error is None
    assert {step.state for step in found.steps} == {PASSED}
    assert [step.text for step in found.steps] == list(METHODS[found.variant].steps)
    assert found.variant == case.policy["variant"]
    assert found.findings


def test_findings_name_what_was_verified() -> None:
    assert snp_case().appraised().findings == {
        "product": "Milan-B0",
        "chip": snp.CHIP.hex(),
        "measurement": snp.MEASUREMENT.hex(),
        "key": key_name(KEY.public),
    }
    assert tpm_case().appraised().findings["profile"] == "deb13-base"
    foreign = constellation_case().appraised().findings
    assert (foreign["profile"], foreign["attestation key"]) == ("deb13-base", TPM.ak.name.hex())
    assert "no endorsement key vouches for it" in foreign["warning"]


def test_a_document_that_does_not_parse_is_refused_at_that_step(case: Case) -> None:
    step, _code = refused_at(case.appraised(b"nothing of the kind"))
    assert "parse" in METHODS[case.policy["variant"]].steps[step - 1]


@pytest.mark.parametrize(
    ("changes", "step", "code"),
    [
        ({"chain": "crl.der"}, None, "TEE_COLLATERAL_MALFORMED"),
        ({"certificate": "chain.pem"}, 3, "TEE_COLLATERAL_MALFORMED"),
        ({"smt": False}, 6, "TEE_ATTRIBUTES"),
        ({"minimumTcb": {"microcode": 116}}, 7, "TEE_TCB_TOO_OLD"),
        ({"minimumGuestSvn": 3}, 7, "TEE_TCB_TOO_OLD"),
        ({"chipIds": ["00" * 64]}, 8, "TEE_CHIP_UNKNOWN"),
        ({"enrolledKeys": []}, 9, "TEE_KEY_UNKNOWN"),
        ({"exchange": "00" * 32}, 9, "BINDING_MISMATCH"),
        ({"measurements": ["00" * 48]}, 10, "TEE_MEASUREMENT"),
        ({"measurements": None}, 10, "POLICY_EMPTY"),
    ],
)
def test_built_snp_report_is_refused_at_the_step_of_the_difference(
    changes: dict[str, Any], step: int | None, code: str
) -> None:
    if step is None:
        with pytest.raises(AttestedError) as caught:
            snp_case().appraised(**changes)
        assert caught.value.code == code
    else:
        assert refused_at(snp_case().appraised(**changes)) == (step, code)


def test_built_snp_report_with_another_signature_is_refused_at_step_4() -> None:
    case = snp_case()
    changed = bytearray(case.document)
    changed[0x2A0] ^= 1
    assert refused_at(case.appraised(bytes(changed))) == (4, "TEE_SIGNATURE")


@pytest.mark.parametrize(
    ("changes", "step", "code"),
    [
        ({"minimumEvaluationNumber": 18}, 3, "TEE_TCB_TOO_OLD"),
        ({"minimumTeeTcbSvn": "ff" * 16}, 4, "TEE_TCB_TOO_OLD"),
        ({"mrSeam": ["00" * 48]}, 4, "TEE_ATTRIBUTES"),
        ({"xfam": ["00" * 8]}, 4, "TEE_ATTRIBUTES"),
        ({"enrolledKeys": None}, 5, "TEE_KEY_UNKNOWN"),
        ({"exchange": "00" * 32}, 5, "BINDING_MISMATCH"),
        ({"measurements": {"0": ["00" * 48]}}, 6, "TEE_MEASUREMENT"),
    ],
)
def test_built_tdx_quote_is_refused_at_the_step_of_the_difference(
    changes: dict[str, Any], step: int, code: str
) -> None:
    assert refused_at(tdx_case().appraised(**changes)) == (step, code)


@pytest.mark.parametrize(
    ("changes", "step", "code"),
    [
        ({"insecureConstellationPeer": None}, 1, "CONSTELLATION_NOT_PERMITTED"),
        ({"attestationKeys": []}, 4, "CONSTELLATION_KEY_UNKNOWN"),
        ({"userData": "00"}, 5, "BINDING_MISMATCH"),
        ({"nonce": "00" * 32}, 6, "BINDING_MISMATCH"),
    ],
)
def test_constellation_document_is_refused_at_the_step_of_the_difference(
    changes: dict[str, Any], step: int, code: str
) -> None:
    assert refused_at(constellation_case().appraised(**changes)) == (step, code)


def test_registers_that_no_profile_allows_are_refused_at_the_last_step() -> None:
    other = render_document(render_profile(learned(boots.load("deb12-base")))).encode()
    for make in (constellation_case, tpm_case):
        case = make()
        case.files = {"profile.yml": other}
        found = case.appraised()
        assert refused_at(found) == (len(found.steps), "PCR_MISMATCH")
        assert found.steps[-1].text == "A profile allows the values"


def test_tpm_answer_is_refused_at_the_step_of_the_difference() -> None:
    case = tpm_case()
    others = tpm_case()
    exchange = 1 + tpm2.STEPS.index("The quote is over this exchange") + 1
    assert refused_at(case.appraised(challenge=others.policy["challenge"])) == (exchange, "BINDING_MISMATCH")
    assert refused_at(case.appraised(clusterId="00" * 32)) == (exchange, "BINDING_MISMATCH")
    assert refused_at(case.appraised(purpose="init")) == (exchange, "BINDING_MISMATCH")
    assert refused_at(case.appraised(challenge=text(b"no message"))) == (1, "MESSAGE_MALFORMED")
    values = json.loads(case.document)
    without = {**values, "event_logs": text(b"")}
    assert refused_at(case.appraised(json.dumps(without).encode())) == (exchange, "BINDING_MISMATCH")
    for wrong in ({**values, "binding": "?"}, {**values, "binding": 5}, {"binding": values["binding"]}, []):
        assert refused_at(case.appraised(json.dumps(wrong).encode())) == (1, "EVIDENCE_MALFORMED")


def test_expired_profile_is_refused_as_of_a_later_time() -> None:
    case = snp_case()
    case.now += timedelta(days=40)
    assert refused_at(case.appraised()) == (2, "TEE_COLLATERAL_EXPIRED")


def test_a_policy_that_cannot_be_read_names_every_problem(case: Case) -> None:
    with pytest.raises(PolicyError) as caught:
        case.appraised(nonsense=1)
    assert caught.value.code == "MANIFEST_INVALID"
    assert "policy: 'nonsense': unknown field" in str(caught.value)


def test_no_file_is_read_for_a_policy_that_is_wrong(case: Case) -> None:
    case.files = {}
    with pytest.raises(PolicyError):
        case.appraised(nonsense=1)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (b"a: b: c", "expected a policy for an appraisal"),
        (b"- tpm2", "variant: expected one of qemu-vtpm, sev-snp, tdx, tpm2, got None"),
        ({"variant": "sgx"}, "got 'sgx'"),
        ({"variant": ["tpm2"]}, "variant: expected one of"),
        ({"variant": "sev-snp"}, "certificate: expected a text"),
        ({"variant": "sev-snp", "exchange": "00"}, "exchange: expected 64 lower-case hex digits in quotes"),
        ({"variant": "sev-snp", "measurements": ["00"]}, "measurements: expected 96 lower-case hex digits in quotes"),
        ({"variant": "sev-snp", "minimumTcb": {"cpu": 1}}, "policy.minimumTcb: 'cpu': unknown field"),
        ({"variant": "tdx", "measurements": {"5": []}}, "policy.measurements: '5': unknown field"),
        ({"variant": "tpm2"}, "challenge: expected base64 text, got NoneType"),
        ({"variant": "qemu-vtpm"}, "userData: expected hex digits"),
    ],
)
def test_a_wrong_policy_is_told(policy: object, said: str) -> None:
    assert said in malformed(policy)


def test_steps_are_the_numbered_ones_of_the_verifiers() -> None:
    """Each docstring numbers as many steps as are shown."""
    for verify, steps in (
        (sev_snp.verify_snp_report, sev_snp.STEPS),
        (tdx.verify_tdx_quote, tdx.STEPS),
        (tpm2.verify_quote, tpm2.STEPS),
    ):
        assert f"    {len(steps)}. " in (verify.__doc__ or "")
        assert f"    {len(steps) + 1}. " not in (verify.__doc__ or "")
    assert len(STEPS) == 8
