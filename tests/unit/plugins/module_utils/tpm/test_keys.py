# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keys.py and sealed.py: what is decided without a TPM."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    ATTESTATION,
    Persistence,
    choose_endorsement_key,
    choose_second_key,
    der_prefix,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import SealedObject
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import EK_ECC, EK_RSA

RSA, ECC, P384 = 0x01C00002, 0x01C0000A, 0x01C00016


@pytest.mark.parametrize(
    ("indices", "template", "certificate"),
    [
        pytest.param((RSA,), EK_RSA, RSA, id="RSA-2048 is certified"),
        pytest.param((ECC, RSA), EK_RSA, RSA, id="both are: RSA-2048"),
        pytest.param((RSA, P384), EK_RSA, RSA, id="RSA-2048 and another one"),
        pytest.param((ECC,), EK_ECC, ECC, id="P-256 is certified"),
        pytest.param((ECC, P384), EK_ECC, ECC, id="P-256 and another one"),
        pytest.param((), EK_RSA, 0, id="nothing is certified"),
        pytest.param((0x01C10102, 0x01C00100), EK_RSA, 0, id="only other indices exist"),
    ],
)
def test_the_endorsement_key_is_chosen(indices: tuple[int, ...], template: object, certificate: int) -> None:
    kind = choose_endorsement_key(indices)
    assert (kind.template, kind.certificate) == (template, certificate)


@pytest.mark.parametrize(
    ("indices", "template", "certificate"),
    [
        pytest.param((RSA,), EK_ECC, 0, id="RSA-2048 is certified"),
        pytest.param((ECC, RSA), EK_ECC, ECC, id="both are: P-256, with its certificate"),
        pytest.param((ECC,), EK_RSA, 0, id="P-256 is certified"),
        pytest.param((), EK_ECC, 0, id="nothing is certified"),
    ],
)
def test_the_second_key_is_the_other_one(indices: tuple[int, ...], template: object, certificate: int) -> None:
    kind = choose_second_key(indices)
    assert (kind.template, kind.certificate) == (template, certificate)
    assert kind.label != choose_endorsement_key(indices).label


@pytest.mark.parametrize(
    ("index", "name"),
    [(0x01C00012, "H-1"), (0x01C00014, "H-2"), (P384, "ECC P-384"), (0x01C0001C, "RSA-3072"), (0x01C0001E, "RSA-4096")],
)
def test_a_tpm_certified_only_otherwise_is_refused_by_name(index: int, name: str) -> None:
    with pytest.raises(TpmError, match=name) as caught:
        choose_endorsement_key((index,))
    assert caught.value.reason is Reason.TPM_EK_UNSUPPORTED


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"\x30\x03abc\xff\xff", b"\x30\x03abc", id="short length, padded with ones"),
        pytest.param(b"\x30\x81\x80" + bytes(128) + bytes(9), b"\x30\x81\x80" + bytes(128), id="one length byte"),
        pytest.param(b"\x30\x82\x01\x00" + bytes(256) + b"x", b"\x30\x82\x01\x00" + bytes(256), id="two length bytes"),
        pytest.param(b"\x30\x82\x01\x00abc", b"\x30\x82\x01\x00abc", id="shorter than it says: left as it is"),
        pytest.param(b"PEM", b"PEM", id="no DER: left as it is"),
        pytest.param(bytes(8), b"", id="padding only"),
        pytest.param(b"\xff" * 8, b"", id="erased storage only"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_a_certificate_is_cut_out_of_its_index(data: bytes, expected: bytes) -> None:
    assert der_prefix(data) == expected


def test_the_plan_tells_what_is_put_in_and_what_is_left() -> None:
    kept, left = Persistence((ATTESTATION,), ()), Persistence((), (ATTESTATION,))
    assert (kept.changed, left.changed) == (True, False)
    assert kept.sentences() == ("attestation key: kept at 0x81018a01",)
    assert "holds another object" in left.sentences()[0]


SEALED = SealedObject(public=b"public", private=b"private", pcrs=(0, 7, 15))


def test_a_sealed_object_survives_being_stored() -> None:
    assert SealedObject.from_json(SEALED.to_json()) == SEALED


def _changed(**changes: object) -> str:
    return json.dumps({**json.loads(SEALED.to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="an empty object"),
        pytest.param("[" * 5000, id="a deep nest"),
        pytest.param('{"a": "' + "x" * 9000 + '"}', id="too long"),
        pytest.param(_changed(version=2), id="another version"),
        pytest.param(_changed(version=True), id="a version that is no number"),
        pytest.param(_changed(alg="none"), id="another algorithm"),
        pytest.param(_changed(more=1), id="a field too many"),
        pytest.param(_changed(pcrs="0"), id="registers that are no list"),
        pytest.param(_changed(pcrs=[True]), id="a register that is no number"),
        pytest.param(_changed(pcrs=[24]), id="a register that does not exist"),
        pytest.param(_changed(public="!"), id="no base64"),
        pytest.param(_changed(private="\u00e9"), id="base64 in other letters"),
    ],
)
def test_a_stored_object_is_refused_that_is(text: str) -> None:
    with pytest.raises(TpmError) as caught:
        SealedObject.from_json(text)
    assert caught.value.reason is Reason.TPM_MALFORMED
