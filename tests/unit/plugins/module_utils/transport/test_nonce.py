# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nonces in names: one spelling, one nonce."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    decode_authorities,
    decode_nonce,
    encode_nonce,
    nonce_authority,
)
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

NONCE = bytes(range(200, 232))
TEXT = "yMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5uc="


@given(st.binary(min_size=32, max_size=32))
def test_a_nonce_survives_the_way(nonce: bytes) -> None:
    """Through the CA name and back."""
    authority = nonce_authority(nonce, now=datetime.now(UTC))
    assert nonce == decode_authorities([authority.subject])


def test_the_wire_form_is_standard_base64() -> None:
    """44 characters with plus, slash and padding, as Constellation's peers send it."""
    assert encode_nonce(NONCE) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(TEXT[:-4], id="29 bytes"),
        pytest.param(TEXT[:-1] + "AAAA=", id="34 bytes"),
        pytest.param(TEXT.replace("/", "_"), id="URL alphabet"),
        pytest.param(TEXT[:10] + "\n" + TEXT[10:], id="line feed inside"),
        pytest.param(TEXT[:-1], id="no padding"),
        pytest.param("node-1.example", id="a host name"),
        pytest.param("ä" * 44, id="not ASCII"),
    ],
)
def test_other_spellings_are_refused(text: str) -> None:
    """Only 32 bytes in standard base64 are a nonce."""
    with pytest.raises(TransportError, match="NONCE_MALFORMED"):
        decode_nonce(text)


def name(*values: str, oid: x509.ObjectIdentifier = x509.NameOID.COMMON_NAME) -> x509.Name:
    """Return a name of ``values``."""
    return x509.Name([x509.NameAttribute(oid, value) for value in values])


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([], id="no CA"),
        pytest.param([name(TEXT), name(TEXT)], id="two CAs"),
        pytest.param([name(TEXT, TEXT)], id="two common names"),
        pytest.param([name(TEXT, oid=x509.NameOID.ORGANIZATION_NAME)], id="another attribute"),
        pytest.param([x509.Name([])], id="an empty name"),
        pytest.param([name("join CA")], id="a real CA"),
    ],
)
def test_a_list_of_authorities_must_be_one_nonce(names: list[x509.Name]) -> None:
    """Exactly one CA with exactly one common name."""
    with pytest.raises(TransportError, match="NONCE_MALFORMED"):
        decode_authorities(names)
