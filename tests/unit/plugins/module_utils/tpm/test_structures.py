# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""structures.py and templates.py against the recorded keys, and every way in which a public area is refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256, RH_ENDORSEMENT
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    EccPoint,
    PcrSelection,
    Public,
    Reader,
    digest,
    ecc_key,
    ecc_point,
    marshal_selections,
    read_selections,
    u16,
    u32,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import (
    AK,
    EK_ECC,
    EK_RSA,
    SRK,
    matches,
    sealed_template,
)
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area, vector
from cryptography.hazmat.primitives import serialization

KEYS = ["ak-ecc", "ak-rsa", "ek"]


@pytest.mark.parametrize("key", KEYS)
def test_a_recorded_public_area_survives_parsing_byte_for_byte(key: str) -> None:
    assert Public.parse(public_area(key)).marshal() == public_area(key)


@pytest.mark.parametrize("key", ["ak-ecc", "ak-rsa"])
def test_the_name_is_the_one_that_the_tools_computed(key: str) -> None:
    assert Public.parse(public_area(key)).name() == vector(f"{key}.name")


@pytest.mark.parametrize("key", ["ak-ecc", "ak-rsa"])
def test_the_exported_key_is_the_one_that_the_tools_exported(key: str) -> None:
    recorded = serialization.load_pem_public_key(vector(f"{key}.pem")).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    ours = Public.parse(public_area(key))
    assert ours.spki() == recorded
    assert ours.spki_sha256() == hashlib.sha256(recorded).hexdigest()


def test_the_recorded_keys_are_of_our_templates() -> None:
    ek, ak = Public.parse(public_area("ek")), Public.parse(public_area("ak-ecc"))
    found = [matches(ek, EK_RSA), matches(ek, EK_ECC), matches(ak, AK), matches(ak, SRK)]
    assert found == [True, False, True, False]


@pytest.mark.parametrize("template", [AK, EK_ECC, EK_RSA, SRK, sealed_template(bytes(32))])
def test_a_template_survives_parsing(template: Public) -> None:
    assert Public.parse(template.marshal()) == template


def test_the_qualified_name_hashes_the_hierarchy_before_the_name() -> None:
    ak = Public.parse(public_area("ak-ecc"))
    expected = u16(ALG_SHA256) + hashlib.sha256(u32(RH_ENDORSEMENT) + ak.name()).digest()
    assert ak.qualified_name(RH_ENDORSEMENT) == expected


def test_a_point_is_padded_to_its_field() -> None:
    point = EccPoint(b"\x01", b"\x02\x03")
    assert point.uncompressed(3) == b"\x04\x00\x00\x01\x00\x02\x03"


def test_a_key_becomes_a_point_and_a_key_again() -> None:
    ak = Public.parse(public_area("ak-ecc"))
    assert isinstance(ak.unique, EccPoint)
    assert ecc_point(ecc_key(3, ak.unique)) == ak.unique


def _patched(key: str, offset: int, value: bytes) -> bytes:
    data = public_area(key)
    return data[:offset] + value + data[offset + len(value) :]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(b"", "more bytes", id="nothing"),
        pytest.param(public_area("ek") + b"\0", "the end of TPMT_PUBLIC", id="a trailing byte"),
        pytest.param(public_area("ek")[:-1], "more bytes", id="the last byte missing"),
        pytest.param(_patched("ak-ecc", 0, u16(0x25)), "an RSA key, an ECC key", id="a symmetric key"),
        pytest.param(_patched("ak-ecc", 8, u16(65)), "at most 64 bytes", id="a policy longer than any hash"),
        pytest.param(_patched("ak-ecc", 10, u16(0x26)), "AES or no symmetric", id="another cipher"),
        pytest.param(_patched("ak-ecc", 12, u16(0x1A)), "RSASSA, RSAPSS, ECDSA", id="an anonymous scheme"),
        pytest.param(_patched("ak-ecc", 18, u16(0x20)), "no key derivation", id="a key derivation scheme"),
        pytest.param(sealed_template(bytes(32)).marshal()[:42] + u16(5) + u16(0), "a sealed object", id="an HMAC key"),
    ],
)
def test_a_public_area_that_is_off_in_one_point_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(TpmError) as caught:
        Public.parse(data)
    assert (caught.value.reason, text in caught.value.message) == (Reason.TPM_MALFORMED, True), caught.value.message


AK_KEY, EK_KEY = Public.parse(public_area("ak-ecc")), Public.parse(public_area("ek"))


@pytest.mark.parametrize(
    ("public", "text"),
    [
        pytest.param(replace(AK_KEY, unique=EccPoint(bytes(32), bytes(32))), "a point of secp256r1", id="no point"),
        pytest.param(
            replace(AK_KEY, parameters=replace(AK_KEY.parameters, curve=0x20)), "P-256 or P-384", id="an odd curve"
        ),
        pytest.param(replace(EK_KEY, unique=bytes(256)), "an RSA modulus of 2048 bits, got 0", id="a zero modulus"),
        pytest.param(replace(EK_KEY, unique=b"\xff" * 128), "2048 bits, got 1024", id="a modulus too short"),
        pytest.param(
            replace(EK_KEY, parameters=replace(EK_KEY.parameters, exponent=2)),
            "an RSA public key",
            id="an even exponent",
        ),
        pytest.param(sealed_template(b""), "expected a key, got sealed data", id="sealed data"),
    ],
)
def test_numbers_that_make_no_key_are_refused(public: Public, text: str) -> None:
    with pytest.raises(TpmError) as caught:
        public.spki()
    assert (caught.value.reason, text in caught.value.message) == (Reason.TPM_MALFORMED, True), caught.value.message


def test_an_unknown_hash_is_refused() -> None:
    with pytest.raises(TpmError, match="SHA-1 or SHA-2"):
        digest(0x12, b"")


def test_a_selection_is_three_bytes_least_significant_register_first() -> None:
    selection = PcrSelection.of([15, 0, 7, 0])
    assert selection == PcrSelection(ALG_SHA256, (0, 7, 15))
    assert selection.marshal() == bytes.fromhex("000b03818000")
    reader = Reader(marshal_selections([selection, PcrSelection.of([23])]), "list")
    assert read_selections(reader) == (selection, PcrSelection.of([23]))


@pytest.mark.parametrize("indices", [[24], [-1], [0, 99]])
def test_a_register_that_does_not_exist_is_refused(indices: list[int]) -> None:
    with pytest.raises(TpmError, match="registers 0 to 23") as caught:
        PcrSelection.of(indices)
    assert caught.value.reason is Reason.TPM_MALFORMED


def test_a_bitmap_of_another_size_is_refused() -> None:
    with pytest.raises(TpmError, match="bitmap of 3 bytes"):
        PcrSelection.read(Reader(bytes.fromhex("000b0481800000"), "selection"))
