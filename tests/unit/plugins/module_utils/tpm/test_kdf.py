# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kdf.py: the cipher against the standard's own example, the derivations against their definition."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import (
    cfb_decrypt,
    cfb_encrypt,
    kdf_a,
    kdf_e,
)

# NIST SP 800-38A, F.3.13 (CFB128-AES128).
KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
IV = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
CIPHER = bytes.fromhex("3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b")


def test_the_cipher_gives_the_example_of_the_standard() -> None:
    assert cfb_encrypt(KEY, IV, PLAIN) == CIPHER
    assert cfb_decrypt(KEY, IV, CIPHER) == PLAIN


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 34])
def test_any_length_comes_back(size: int) -> None:
    plain = bytes(range(size))
    assert cfb_decrypt(KEY, IV, cfb_encrypt(KEY, IV, plain)) == plain


def test_kdf_a_is_hmac_over_counter_label_context_and_bits() -> None:
    first, second = (
        hmac.digest(b"k", bytes([0, 0, 0, n]) + b"ATH\0" + b"uv" + (512).to_bytes(4, "big"), "sha256") for n in (1, 2)
    )
    assert kdf_a(b"k", b"ATH", context=b"uv", size=64) == first + second


def test_kdf_a_stops_at_the_wanted_size() -> None:
    expected = hmac.digest(b"k", bytes([0, 0, 0, 1]) + b"STORAGE\0" + b"n" + (128).to_bytes(4, "big"), "sha256")
    assert kdf_a(b"k", b"STORAGE", context=b"n", size=16) == expected[:16]


def test_kdf_e_is_a_hash_over_counter_secret_label_and_parties() -> None:
    assert kdf_e(b"z", b"IDENTITY", context=b"uv") == hashlib.sha256(b"\0\0\0\x01zIDENTITY\0uv").digest()
