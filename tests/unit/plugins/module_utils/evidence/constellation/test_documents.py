# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's attestation document: known answers, our own both ways, and each weak spot of theirs refused."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.constellation import (
    MAX_DOCUMENT_BYTES,
    STEPS,
    VERIFY_SERVICE_USER_DATA,
    BankQuote,
    ConstellationDocument,
    ConstellationPolicy,
    VerifiedConstellationDocument,
    document_digest,
    extra_data,
    issue_constellation_document,
    verify_constellation_document,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import verify_evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_SHA1,
    ALG_SHA256,
    ALG_SHA384,
    ATTR_RESTRICTED,
    DIGEST_SIZES,
    RH_OWNER,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import PcrSelection
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest

NONCE = b"n" * 32
BOOT = boots.load("deb13-base")
TPM = SoftTpm(BOOT.pcrs)
GOOD = issue_constellation_document(TPM, TPM.ak, nonce=NONCE)
POLICY = ConstellationPolicy(insecure_constellation_peer=True, attestation_keys=frozenset({TPM.ak.name}))
DIGEST = document_digest(user_data=VERIFY_SERVICE_USER_DATA, nonce=NONCE)


def verified(document: bytes = GOOD, **changes: Any) -> VerifiedConstellationDocument:
    arguments: dict[str, Any] = {"user_data": VERIFY_SERVICE_USER_DATA, "nonce": NONCE, "policy": POLICY, **changes}
    return verify_constellation_document(document, **arguments)


def refused(document: bytes = GOOD, **changes: Any) -> str:
    with pytest.raises(Refusal) as caught:
        verified(document, **changes)
    return caught.value.code


def quoted(
    bank: int = ALG_SHA256,
    values: dict[int, bytes] | None = None,
    change: Callable[[Attest], Attest] = lambda attest: attest,
) -> BankQuote:
    """Return what a TPM with a bank of these values quotes, after ``change`` and signed by the real key."""
    held = values or {index: bytes([index]) * DIGEST_SIZES[bank] for index in range(24)}
    attest = replace(
        TPM.attest(TPM.ak, DIGEST, range(24)),
        pcr_selections=(PcrSelection.of(held, bank=bank),),
        pcr_digest=hashlib.sha256(b"".join(held[index] for index in sorted(held))).digest(),
    )
    signed = TPM.signed(change(attest))
    return BankQuote(bank=bank, quote=signed.attest, signature=signed.signature, pcrs=held)


def document(*quotes: BankQuote, **changes: Any) -> bytes:
    whole = ConstellationDocument(
        ak_public=TPM.ak.public.marshal(), quotes=quotes, event_log=b"", user_data=VERIFY_SERVICE_USER_DATA
    )
    return replace(whole, **changes).to_bytes()


def edited(*path: str | int, value: object) -> bytes:
    """Return the good document with one value of its JSON changed; ``...`` takes it out."""
    whole = json.loads(GOOD)
    holder = whole
    for step in path[:-1]:
        holder = holder[step]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(whole).encode()


def test_known_answer_of_extra_data() -> None:
    """A vector of Constellation's facts: user data `Constellation`, nonce 01020304."""
    nonce = bytes.fromhex("01020304")
    wanted = "cfc52e55ebecb9c8d5da5f58c838eef30bee7575d1cde5559336e3b90234cbd2"
    assert extra_data(user_data=b"Constellation", nonce=nonce).hex() == wanted


@pytest.mark.parametrize(
    ("instance_info", "wanted"),
    [
        pytest.param(b"", "6196c50382d9b05e7b25710bfb4503cb97e881a1227f00477494e99761744a6a", id="none, as qemu-vtpm"),
        pytest.param(b"unit-test", "bf0af9ec39350d01ea3017136c8ec47a14498bfdbe92a37d949c2c4fb61adcf7", id="some"),
    ],
)
def test_known_answer_of_qualifying_data(instance_info: bytes, wanted: str) -> None:
    nonce = bytes.fromhex("01020304")
    digest = document_digest(user_data=b"Constellation", nonce=nonce, instance_info=instance_info)
    assert digest.hex() == wanted


def test_ours_has_their_form() -> None:
    """Field names, order, and base64 as their Go code writes them."""
    whole = json.loads(GOOD)
    assert list(whole) == ["Attestation", "InstanceInfo", "UserData"]
    assert (whole["InstanceInfo"], base64.b64decode(whole["UserData"])) == (None, b"VerifyService")
    inner = whole["Attestation"]
    assert list(inner) == ["ak_pub", "quotes", "TeeAttestation"]
    assert inner["TeeAttestation"] is None
    (quote,) = inner["quotes"]
    assert list(quote) == ["quote", "raw_sig", "pcrs"]
    assert quote["pcrs"]["hash"] == 11
    assert list(quote["pcrs"]["pcrs"]) == [str(index) for index in range(24)]
    assert base64.b64decode(quote["quote"])[:6].hex() == "ff5443478018"
    assert base64.b64decode(quote["pcrs"]["pcrs"]["4"]) == BOOT.pcrs[4]


def test_ours_verifies() -> None:
    found = verified()
    assert (found.ak_name, found.user_data, found.firmware_log) == (TPM.ak.name, b"VerifyService", None)
    assert found.pcrs == TPM.pcrs


def test_a_document_survives_parsing() -> None:
    assert ConstellationDocument.parse(GOOD).to_bytes() == GOOD


def test_two_genuine_banks_and_the_owner_hierarchy_are_theirs() -> None:
    """Their key is a primary of the owner hierarchy, and their document has a quote a bank."""

    def owned(attest: Attest) -> Attest:
        return replace(attest, qualified_signer=TPM.ak.public.qualified_name(RH_OWNER))

    values = dict(TPM.pcrs)
    found = verified(document(quoted(ALG_SHA384, change=owned), quoted(values=values, change=owned)))
    assert found.pcrs == values


def test_an_event_log_that_leads_to_the_values_is_kept() -> None:
    """A log without registers that the operating system extends, as theirs must be."""
    recorded = boots.load("deb12-base")
    tpm = SoftTpm(recorded.pcrs)
    parsed = ConstellationDocument.parse(issue_constellation_document(tpm, tpm.ak, nonce=NONCE))
    policy = replace(POLICY, attestation_keys=frozenset({tpm.ak.name}))
    found = verified(replace(parsed, event_log=recorded.firmware).to_bytes(), policy=policy)
    assert found.firmware_log is not None
    assert found.firmware_log.events


def test_an_event_log_of_another_boot() -> None:
    other = boots.load("deb13-grub").firmware
    parsed = ConstellationDocument.parse(GOOD)
    assert refused(replace(parsed, event_log=other).to_bytes()) == "EVENT_LOG_MISMATCH"


def test_without_the_permission_nothing_is_even_parsed() -> None:
    """Step 1."""
    assert refused(b"no JSON", policy=ConstellationPolicy()) == "CONSTELLATION_NOT_PERMITTED"
    assert refused(policy=replace(POLICY, insecure_constellation_peer=False)) == "CONSTELLATION_NOT_PERMITTED"


def test_a_key_that_the_document_brings_along() -> None:
    """Weak spot of theirs: any key is believed (L5). A TPM, or a program, with a key of its own is not."""
    other = SoftTpm(BOOT.pcrs)
    assert refused(issue_constellation_document(other, other.ak, nonce=NONCE)) == "CONSTELLATION_KEY_UNKNOWN"
    assert refused(policy=replace(POLICY, attestation_keys=frozenset())) == "CONSTELLATION_KEY_UNKNOWN"


def test_a_key_that_signs_anything() -> None:
    loose = TPM.with_ak_public(attributes=TPM.ak.public.attributes & ~ATTR_RESTRICTED)
    policy = replace(POLICY, attestation_keys=frozenset({loose.name}))
    changed = replace(ConstellationDocument.parse(GOOD), ak_public=loose.public.marshal()).to_bytes()
    assert refused(changed, policy=policy) == "AK_ATTRIBUTES"


def invented(bank: int) -> BankQuote:
    """Return a quote that nobody signed: the good one's bytes beside other values."""
    values = dict.fromkeys(range(24), b"\xaa" * DIGEST_SIZES[bank])
    return replace(quoted(), bank=bank, pcrs=values)


@pytest.mark.parametrize(
    ("quotes", "code"),
    [
        pytest.param((quoted(ALG_SHA384), invented(ALG_SHA256)), "QUOTE_DIGEST", id="SHA-384 real, other invented"),
        pytest.param((quoted(), invented(ALG_SHA384)), "QUOTE_SELECTION", id="SHA-256 real, SHA-384 invented"),
        pytest.param((quoted(), invented(ALG_SHA1)), "QUOTE_SELECTION", id="SHA-256 real, SHA-1 invented"),
        pytest.param((quoted(), quoted()), "CONSTELLATION_BANKS", id="SHA-256 twice, both real"),
        pytest.param((invented(ALG_SHA256), quoted()), "CONSTELLATION_BANKS", id="SHA-256 twice, the first invented"),
        pytest.param((quoted(ALG_SHA384), quoted(ALG_SHA384), quoted()), "CONSTELLATION_BANKS", id="SHA-384 twice"),
        pytest.param((quoted(ALG_SHA384),), "CONSTELLATION_BANKS", id="no SHA-256"),
    ],
)
def test_banks_that_confuse_their_verifier(quotes: tuple[BankQuote, ...], code: str) -> None:
    """Weak spot of theirs (L8): one quote is verified and another one's values are compared."""
    assert refused(document(*quotes)) == code


def test_a_second_bank_whose_values_were_changed() -> None:
    second = quoted(ALG_SHA384)
    changed = replace(second, pcrs={**second.pcrs, 7: b"\x00" * 48})
    assert refused(document(quoted(), changed)) == "QUOTE_DIGEST"


def test_a_second_bank_with_another_nonce() -> None:
    other = quoted(ALG_SHA384, change=lambda attest: replace(attest, extra_data=b"x" * 32))
    assert refused(document(quoted(), other)) == "BINDING_MISMATCH"


def test_a_second_bank_of_another_run() -> None:
    def later(attest: Attest) -> Attest:
        return replace(attest, clock_info=replace(attest.clock_info, reset_count=9))

    assert refused(document(quoted(), quoted(ALG_SHA384, change=later))) == "TPM_RESET_BETWEEN"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"qualified_signer": b"\x00\x0b" + b"s" * 32}, "AK_HIERARCHY", id="signer"),
        pytest.param({"extra_data": b"x" * 32}, "BINDING_MISMATCH", id="qualifying data"),
        pytest.param({"pcr_selections": (PcrSelection.of(range(23)),)}, "QUOTE_SELECTION", id="a register less"),
        pytest.param({"pcr_digest": b"d" * 32}, "QUOTE_DIGEST", id="digest"),
        pytest.param({"magic": 0}, "QUOTE_MALFORMED", id="magic number"),
    ],
)
def test_a_quote_with_one_field_changed(change: dict[str, Any], code: str) -> None:
    assert refused(document(quoted(change=lambda attest: replace(attest, **change)))) == code


def test_a_changed_signature() -> None:
    one = quoted()
    assert refused(document(replace(one, signature=quoted().signature))) == "QUOTE_SIGNATURE"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"nonce": b"m" * 32}, id="another nonce"),
        pytest.param({"user_data": b"Other"}, id="other user data"),
    ],
)
def test_a_document_for_something_else(changes: dict[str, bytes]) -> None:
    assert refused(**changes) == "BINDING_MISMATCH"


def test_user_data_and_nonce_that_only_together_are_right() -> None:
    """Their digest joins the two without a length: the user data are compared on their own."""
    assert refused(user_data=VERIFY_SERVICE_USER_DATA + b"n", nonce=b"n" * 31) == "BINDING_MISMATCH"


@pytest.mark.parametrize("nonce", [b"", b"n" * 1025])
def test_a_nonce_of_an_impossible_length_is_not_signed(nonce: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        issue_constellation_document(TPM, TPM.ak, nonce=nonce)
    assert caught.value.code == "BINDING_MALFORMED"


A, QUOTE = "Attestation", ("Attestation", "quotes", 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(b"\xff" + GOOD, id="not UTF-8"),
        pytest.param(GOOD + b"{}", id="two documents"),
        pytest.param(GOOD.replace(b'"UserData"', b'"UserData":"","UserData"'), id="a name twice"),
        pytest.param(b'{"Attestation":NaN}', id="a number that JSON has not"),
        pytest.param(edited("Other", value=1), id="an unknown field outside"),
        pytest.param(edited(A, "other", value=1), id="an unknown field inside"),
        pytest.param(edited("InstanceInfo", value="AAAA"), id="instance information"),
        pytest.param(edited(A, "TeeAttestation", value={"SevSnpAttestation": {}}), id="evidence of a TEE"),
        pytest.param(edited(A, value=[]), id="no attestation"),
        pytest.param(edited(A, "ak_pub", value=...), id="no key"),
        pytest.param(edited(A, "ak_pub", value="AAAA="), id="base64 with wrong padding"),
        pytest.param(edited(A, "ak_pub", value="é"), id="base64 of other letters"),
        pytest.param(edited(A, "ak_pub", value="AAAA"), id="a key that is none"),
        pytest.param(edited(A, "quotes", value=[]), id="no quotes"),
        pytest.param(edited(A, "quotes", value=None), id="null for quotes"),
        pytest.param(edited(A, "quotes", value=[{}] * 5), id="five quotes"),
        pytest.param(edited(*QUOTE, value=7), id="a number for a quote"),
        pytest.param(edited(*QUOTE, "pcrs", "hash", value=True), id="a truth value for a bank"),
        pytest.param(edited(*QUOTE, "pcrs", "hash", value=18), id="an unknown bank"),
        pytest.param(edited(*QUOTE, "pcrs", "pcrs", "24", value="AAAA"), id="register 24"),
        pytest.param(edited(*QUOTE, "pcrs", "pcrs", "04", value="AAAA"), id="a register with two names"),
        pytest.param(edited(*QUOTE, "pcrs", "pcrs", "4", value="AAAA"), id="a short value"),
    ],
)
def test_bytes_that_are_no_document(data: bytes) -> None:
    """Step 2."""
    assert refused(data) == "EVIDENCE_MALFORMED"


def test_a_document_without_end() -> None:
    assert refused(b" " * (MAX_DOCUMENT_BYTES + 1)) == "MESSAGE_TOO_LARGE"


@given(st.integers(min_value=0, max_value=len(GOOD) * 8 - 1))
def test_any_changed_bit_is_a_refusal_or_changes_nothing(bit: int) -> None:
    """A bit in the padding of base64, or in the case of an escape, may mean the same; then the outcome is the same."""
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        found = verified(bytes(changed))
    except Refusal:
        return
    assert (found.pcrs, found.ak_name) == (TPM.pcrs, TPM.ak.name)


@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    assert refused(data) == "EVIDENCE_MALFORMED"


def test_such_evidence_admits_nobody() -> None:
    """A machine that joins may not name this variant, whatever its quote."""
    evidence = Evidence(variant="qemu-vtpm", ak_public=b"", quote=b"", signature=b"", pcrs={})
    with pytest.raises(Refusal) as caught:
        verify_evidence(evidence, qualifying_data=b"q" * 32)
    assert caught.value.code == "VARIANT_NOT_ADMITTED"


def test_every_step_is_announced_once_and_in_order() -> None:
    numbers: list[int] = []
    verified(reached=numbers.append)
    assert numbers == list(range(1, len(STEPS) + 1))
