# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DER: what is not the one encoding of something is refused."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.der import (
    INTEGER,
    SEQUENCE,
    elements,
    integer,
    only,
)
from hypothesis import given
from hypothesis import strategies as st


def refused(hexadecimal: str) -> str:
    with pytest.raises(Refusal) as caught:
        integer(only(bytes.fromhex(hexadecimal), INTEGER))
    return caught.value.code


@pytest.mark.parametrize(("data", "number"), [("020100", 0), ("02017f", 127), ("02020080", 128), ("02020100", 256)])
def test_integers(data: str, number: int) -> None:
    assert integer(only(bytes.fromhex(data), INTEGER)) == number


def test_nested_elements() -> None:
    first, second = only(bytes.fromhex("3006020101020102"), SEQUENCE).children()
    assert (integer(first), integer(second)) == (1, 2)


def test_a_long_element() -> None:
    content = b"\x05" * 300
    assert only(b"\x04\x82\x01\x2c" + content, 0x04).content == content


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="nothing"),
        pytest.param("02", id="a tag alone"),
        pytest.param("0201", id="a content that is missing"),
        pytest.param("020101ff", id="a byte behind it"),
        pytest.param("030101", id="another tag"),
        pytest.param("1f2a0101", id="a tag of two bytes"),
        pytest.param("02810101", id="a length longer than needed"),
        pytest.param("0282000101", id="a length with a leading zero"),
        pytest.param("0280010000", id="an indefinite length"),
        pytest.param("0284000000010a", id="a length of four bytes"),
        pytest.param("0200", id="an integer of no bytes"),
        pytest.param("020180", id="a negative integer"),
        pytest.param("02020001", id="an integer with a leading zero"),
    ],
)
def test_another_encoding(data: str) -> None:
    assert refused(data) == "EVIDENCE_MALFORMED"


@given(st.binary(max_size=64))
def test_what_is_read_is_what_is_written(data: bytes) -> None:
    try:
        found = elements(data)
    except Refusal as error:
        assert error.code == "EVIDENCE_MALFORMED"
    else:
        assert b"".join(one.encoded for one in found) == data
