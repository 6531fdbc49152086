# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of one quote: recorded ones of real TPMs pass, and each step refuses what it is there for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal, TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import verify_evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import STEPS, issue, verify_quote
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_ECDSA,
    ALG_RSAPSS,
    ALG_SHA256,
    ALG_SHA384,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    Attest,
    PcrSelection,
    Public,
    RsaParameters,
    Scheme,
    Signature,
    Symmetric,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import EK_ECC, sealed_template
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area, vector
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import VerifiedQuote
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Quote

DATA = b"q" * 32
TPM = SoftTpm({4: b"b" * 32})
GOOD = issue(TPM, TPM.ak, qualifying_data=DATA, pcrs=(4, 0, 7))
RECORDED_NONCE = bytes.fromhex(vector("nonce.hex").decode().strip())


def verified(evidence: Evidence) -> VerifiedQuote:
    return verify_evidence(evidence, qualifying_data=DATA)


def refused(evidence: Evidence) -> Refusal:
    with pytest.raises(Refusal) as caught:
        verified(evidence)
    return caught.value


def recorded(key: str) -> Evidence:
    return Evidence(
        variant="tpm2",
        ak_public=public_area(f"ak-{key}"),
        quote=vector(f"quote-ak-{key}.tpms_attest"),
        signature=vector(f"quote-ak-{key}.tpmt_signature"),
        pcrs=boots.load("deb13-base").pcrs,
    )


def with_ak(**changes: Any) -> Evidence:
    return replace(GOOD, ak_public=TPM.with_ak_public(**changes).public.marshal())


def resigned(change: Callable[[Attest], Attest]) -> Evidence:
    quote = TPM.signed(change(Attest.parse(GOOD.quote)))
    return replace(GOOD, quote=quote.attest, signature=quote.signature)


@pytest.mark.parametrize("key", ["ecc", "rsa"])
def test_quotes_of_a_real_tpm_verify(key: str) -> None:
    """Made by tpm2-tools in the recorded machine; over all registers."""
    quote = verify_evidence(recorded(key), qualifying_data=RECORDED_NONCE)
    assert quote.pcrs == boots.load("deb13-base").pcrs
    assert quote.ak_name == vector(f"ak-{key}.name")
    assert (quote.clock_info.reset_count, quote.clock_info.restart_count) == (2, 0)


def test_a_quote_of_the_test_attester_verifies() -> None:
    assert verified(GOOD).pcrs == {0: bytes(32), 4: b"b" * 32, 7: bytes(32)}


def test_every_step_is_announced_once_and_in_order() -> None:
    numbers: list[int] = []
    verify_quote(GOOD, qualifying_data=DATA, reached=numbers.append)
    assert numbers == list(range(1, len(STEPS) + 1))


def test_values_in_another_order_are_the_same_values() -> None:
    assert verified(replace(GOOD, pcrs=dict(reversed(GOOD.pcrs.items())))).pcrs == GOOD.pcrs


def test_a_recorded_quote_is_not_over_another_nonce() -> None:
    """S1."""
    with pytest.raises(Refusal) as caught:
        verify_evidence(recorded("ecc"), qualifying_data=DATA)
    assert caught.value.code == "BINDING_MISMATCH"


@pytest.mark.parametrize(
    ("bit", "name"),
    [(1, "fixedTPM"), (4, "fixedParent"), (5, "sensitiveDataOrigin"), (16, "restricted"), (18, "sign")],
)
def test_step_1_a_key_that_its_tpm_does_not_keep_to_itself(bit: int, name: str) -> None:
    """S4 (c): such a key may have been made outside, or sign what anybody wishes."""
    error = refused(with_ak(attributes=TPM.ak.public.attributes & ~(1 << bit)))
    assert (error.code, f"that is {name}, got" in error.message) == ("AK_ATTRIBUTES", True)


def test_step_1_a_key_that_decrypts() -> None:
    assert refused(with_ak(attributes=TPM.ak.public.attributes | 1 << 17)).code == "AK_ATTRIBUTES"


def test_step_1_a_name_of_another_hash() -> None:
    error = refused(with_ak(name_alg=ALG_SHA384))
    assert (error.code, "['0x000b', '0x000c']" in error.message) == ("AK_ATTRIBUTES", True)


def test_step_1_a_scheme_of_another_hash() -> None:
    parameters = replace(TPM.ak.public.parameters, scheme=Scheme(ALG_ECDSA, ALG_SHA384))  # type: ignore[arg-type]
    assert refused(with_ak(parameters=parameters)).code == "AK_ATTRIBUTES"


def test_step_1_a_key_without_scheme() -> None:
    parameters = replace(TPM.ak.public.parameters, scheme=Scheme())  # type: ignore[arg-type]
    assert refused(with_ak(parameters=parameters)).code == "AK_ATTRIBUTES"


OFF_THE_CURVE = GOOD.ak_public[:-1] + bytes([GOOD.ak_public[-1] ^ 1])


@pytest.mark.parametrize(
    ("ak_public", "code"),
    [
        pytest.param(EK_ECC.marshal(), "AK_ATTRIBUTES", id="an endorsement key"),
        pytest.param(
            replace(sealed_template(b""), attributes=TPM.ak.public.attributes).marshal(),
            "AK_ATTRIBUTES",
            id="sealed data with the attributes of a key",
        ),
        pytest.param(b"", "EVIDENCE_MALFORMED", id="nothing"),
        pytest.param(GOOD.ak_public + b"\x00", "EVIDENCE_MALFORMED", id="a byte behind the key"),
        pytest.param(OFF_THE_CURVE, "EVIDENCE_MALFORMED", id="a point that is not on the curve"),
    ],
)
def test_step_1_no_attestation_key(ak_public: bytes, code: str) -> None:
    assert refused(replace(GOOD, ak_public=ak_public)).code == code


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(replace(GOOD, quote=b""), id="nothing"),
        pytest.param(replace(GOOD, quote=GOOD.quote + b"\x00"), id="a byte behind the quote"),
        pytest.param(resigned(lambda attest: replace(attest, magic=0xFF544348)), id="another magic number"),
        pytest.param(resigned(lambda attest: replace(attest, type=0x8014, body=b"")), id="another type"),
    ],
)
def test_step_2_no_quote(evidence: Evidence) -> None:
    """S7."""
    assert refused(evidence).code == "QUOTE_MALFORMED"


@pytest.mark.parametrize("position", range(8, len(GOOD.quote) - 40, 7))
def test_step_3_a_changed_quote(position: int) -> None:
    changed = bytearray(GOOD.quote)
    changed[position] ^= 1
    assert refused(replace(GOOD, quote=bytes(changed))).code in {"QUOTE_SIGNATURE", "QUOTE_MALFORMED"}


def test_step_3_a_signature_of_another_key() -> None:
    stranger = SoftTpm()
    signature = stranger.signed_bytes(GOOD.quote).signature
    assert refused(replace(GOOD, signature=signature)).code == "QUOTE_SIGNATURE"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"hash_alg": ALG_SHA384}, "QUOTE_SIGNATURE", id="another hash"),
        pytest.param({"alg": ALG_RSAPSS, "parts": (b"x" * 256,)}, "QUOTE_SIGNATURE", id="another scheme"),
        pytest.param({"parts": (b"", b"")}, "QUOTE_SIGNATURE", id="zero and zero"),
    ],
)
def test_step_3_a_signature_of_another_scheme(changes: dict[str, Any], code: str) -> None:
    signature = replace(Signature.parse(GOOD.signature), **changes).marshal()
    assert refused(replace(GOOD, signature=signature)).code == code


def test_step_3_no_signature() -> None:
    assert refused(replace(GOOD, signature=GOOD.signature + b"\x00")).code == "EVIDENCE_MALFORMED"


def test_step_4_a_key_of_another_hierarchy() -> None:
    """There the TPM disguises its reset count, so a reset could not be seen."""
    owner = resigned(lambda attest: replace(attest, qualified_signer=TPM.ak.public.qualified_name(0x40000001)))
    assert refused(owner).code == "AK_HIERARCHY"


@pytest.mark.parametrize("extra", [b"", b"q" * 31, b"r" * 32])
def test_step_5_other_qualifying_data(extra: bytes) -> None:
    assert refused(resigned(lambda attest: replace(attest, extra_data=extra))).code == "BINDING_MISMATCH"


@pytest.mark.parametrize(
    "pcrs",
    [
        pytest.param({}, id="no value"),
        pytest.param({0: bytes(32), 4: b"b" * 32}, id="a value left out"),
        pytest.param({**GOOD.pcrs, 8: bytes(32)}, id="a value added"),
    ],
)
def test_step_6_other_registers_than_quoted(pcrs: dict[int, bytes]) -> None:
    """S8."""
    assert refused(replace(GOOD, pcrs=pcrs)).code == "QUOTE_SELECTION"


def test_step_6_another_bank_as_well() -> None:
    """S8: a digest over two banks does not say which value belongs to which."""
    both = resigned(
        lambda attest: replace(attest, pcr_selections=(*attest.pcr_selections, PcrSelection(ALG_SHA384, (4,))))
    )
    error = refused(both)
    assert (error.code, " of bank 0x000b and [" in error.message) == ("QUOTE_SELECTION", True)


def test_step_6_a_quote_over_nothing() -> None:
    empty = issue(TPM, TPM.ak, qualifying_data=DATA, pcrs=())
    assert refused(empty).code == "QUOTE_SELECTION"


def test_step_6_a_quote_without_a_selection() -> None:
    error = refused(resigned(lambda attest: replace(attest, pcr_selections=())))
    assert (error.code, error.message.endswith("got no register")) == ("QUOTE_SELECTION", True)


class BusyTpm(SoftTpm):
    """A TPM in which another program extends a register before each of the first quotes."""

    def __init__(self, extensions: int) -> None:
        super().__init__()
        self.extensions, self.reads = extensions, 0

    def pcr_read(self, *args: Any, **options: Any) -> dict[int, bytes]:
        self.reads += 1
        return super().pcr_read(*args, **options)

    def quote(self, *args: Any) -> Quote:
        if self.extensions:
            self.extensions -= 1
            self.pcr_extend(16, {ALG_SHA256: bytes(32)})
        return super().quote(*args)


@pytest.mark.parametrize("extensions", [0, 1, 4])
def test_registers_that_change_before_the_quote_are_read_and_quoted_again(extensions: int) -> None:
    tpm = BusyTpm(extensions)
    evidence = issue(tpm, tpm.ak, qualifying_data=DATA, pcrs=(16, 1, 16))
    assert verified(evidence).pcrs == {1: tpm.pcrs[1], 16: tpm.pcrs[16]}
    assert tpm.reads == extensions + 1


def test_registers_that_change_before_each_of_five_quotes_are_an_error() -> None:
    tpm = BusyTpm(5)
    with pytest.raises(TpmError, match="they changed 5 times") as caught:
        issue(tpm, tpm.ak, qualifying_data=DATA, pcrs=(16,))
    assert (caught.value.code, tpm.reads) == ("TPM_BUSY", 5)


def test_step_7_other_values_than_quoted() -> None:
    assert refused(replace(GOOD, pcrs={**GOOD.pcrs, 4: b"g" * 32})).code == "QUOTE_DIGEST"


@pytest.mark.parametrize("scheme", ["PSS", "PKCS1v15"])
def test_rsa_keys_verify_by_their_own_padding(scheme: str) -> None:
    key = rsa.generate_private_key(65537, 2048)
    alg = ALG_RSAPSS if scheme == "PSS" else 0x0014
    parameters = RsaParameters(symmetric=Symmetric(), scheme=Scheme(alg, ALG_SHA256), key_bits=2048, exponent=0)
    modulus = key.public_key().public_numbers().n.to_bytes(256, "big")
    ak = Public(
        type=1,
        name_alg=ALG_SHA256,
        attributes=TPM.ak.public.attributes,
        auth_policy=b"",
        parameters=parameters,
        unique=modulus,
    )
    signer = ak.qualified_name(0x4000000B)
    quote = replace(Attest.parse(GOOD.quote), qualified_signer=signer).marshal()
    used = padding.PSS(padding.MGF1(hashes.SHA256()), 32) if scheme == "PSS" else padding.PKCS1v15()
    signature = Signature(alg=alg, hash_alg=ALG_SHA256, parts=(key.sign(quote, used, hashes.SHA256()),)).marshal()
    evidence = replace(GOOD, ak_public=ak.marshal(), quote=quote, signature=signature)
    assert verified(evidence).ak_name == ak.name()
    other = replace(evidence, signature=signature[:-1] + bytes([signature[-1] ^ 1]))
    assert refused(other).code == "QUOTE_SIGNATURE"


def test_an_unknown_variant_is_refused_by_name() -> None:
    error = refused(replace(GOOD, variant="tpm1"))
    assert (error.code, error.message) == (
        "VARIANT_UNKNOWN",
        "expected evidence of qemu-vtpm, sev-snp, tdx, tpm2, got 'tpm1'",
    )


@given(
    field=st.sampled_from(["ak_public", "quote", "signature"]),
    at=st.integers(0, 1023),
    bit=st.integers(0, 7),
    cut=st.booleans(),
)
def test_broken_structures_are_always_refused(field: str, at: int, bit: int, *, cut: bool) -> None:
    """No flipped bit and no truncation of a structure verifies, and none raises anything outside the tree."""
    data = bytearray(getattr(GOOD, field))
    at %= len(data)
    if cut:
        del data[at:]
    else:
        data[at] ^= 1 << bit
    with pytest.raises(AttestedError):
        verified(replace(GOOD, **{field: bytes(data)}))
