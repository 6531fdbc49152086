# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attest.py against the recorded quotes."""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_ECDSA,
    ALG_RSASSA,
    ALG_SHA256,
    GENERATED_MAGIC,
    RH_ENDORSEMENT,
    TAG_ATTEST_QUOTE,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    Attest,
    ClockInfo,
    PcrSelection,
    Public,
    Signature,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area, vector
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

QUOTE = vector("quote-ak-ecc.tpms_attest")
SIGNATURE = vector("quote-ak-ecc.tpmt_signature")


def test_a_recorded_quote_says_what_the_machine_was() -> None:
    quote, registers = Attest.parse(QUOTE), boots.load("deb13-base").pcrs
    assert (quote.magic, quote.type) == (GENERATED_MAGIC, TAG_ATTEST_QUOTE)
    assert quote.extra_data == bytes.fromhex(vector("nonce.hex").decode())
    assert quote.clock_info == ClockInfo(clock=33602, reset_count=2, restart_count=0, safe=True)
    assert quote.pcr_selections == (PcrSelection(ALG_SHA256, tuple(range(24))),)
    values = b"".join(registers[index] for index in range(24))
    assert quote.pcr_digest == hashlib.sha256(values).digest()


def test_the_signer_is_the_recorded_key_as_a_primary_of_the_endorsement_hierarchy() -> None:
    ak = Public.parse(public_area("ak-ecc"))
    assert Attest.parse(QUOTE).qualified_signer == ak.qualified_name(RH_ENDORSEMENT)


@pytest.mark.parametrize("key", ["ak-ecc", "ak-rsa"])
def test_quote_and_signature_survive_parsing_byte_for_byte(key: str) -> None:
    quote, signature = vector(f"quote-{key}.tpms_attest"), vector(f"quote-{key}.tpmt_signature")
    assert Attest.parse(quote).marshal() == quote
    assert Signature.parse(signature).marshal() == signature


@pytest.mark.parametrize(("key", "alg"), [("ak-ecc", ALG_ECDSA), ("ak-rsa", ALG_RSASSA)])
def test_the_signature_is_in_the_form_that_the_library_verifies(key: str, alg: int) -> None:
    signature = Signature.parse(vector(f"quote-{key}.tpmt_signature"))
    public, quote = Public.parse(public_area(key)).key(), vector(f"quote-{key}.tpms_attest")
    assert (signature.alg, signature.hash_alg) == (alg, ALG_SHA256)
    if isinstance(public, rsa.RSAPublicKey):
        public.verify(signature.raw(), quote, padding.PKCS1v15(), hashes.SHA256())
        return
    public.verify(signature.raw(), quote, ec.ECDSA(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        public.verify(signature.raw(), quote + b"\0", ec.ECDSA(hashes.SHA256()))


def test_another_kind_of_statement_is_kept_as_bytes_and_names_no_register() -> None:
    other = QUOTE[:4] + b"\x80\x17" + QUOTE[6:]
    statement = Attest.parse(other)
    assert (statement.type, statement.pcr_selections, statement.pcr_digest) == (0x8017, (), b"")
    assert statement.marshal() == other


@pytest.mark.parametrize(
    ("parse", "data", "text"),
    [
        pytest.param(Attest.parse, QUOTE + b"\0", "the end of TPMS_ATTEST", id="a byte behind the quote"),
        pytest.param(Attest.parse, QUOTE[:-1], "more bytes", id="a quote cut short"),
        pytest.param(
            Attest.parse, QUOTE.replace(b"\x01\x20\x19\x10\x23", b"\x02\x20\x19\x10\x23", 1), "0 or 1", id="safe is 2"
        ),
        pytest.param(Signature.parse, SIGNATURE + b"\0", "the end of TPMT_SIGNATURE", id="a byte behind the signature"),
        pytest.param(Signature.parse, SIGNATURE[:-1], "more bytes", id="a signature cut short"),
        pytest.param(Signature.parse, b"\x00\x05" + SIGNATURE[2:], "RSASSA, RSAPSS or ECDSA", id="an HMAC"),
    ],
)
def test_a_statement_that_is_off_in_one_point_is_refused(parse, data: bytes, text: str) -> None:
    with pytest.raises(TpmError) as caught:
        parse(data)
    assert (caught.value.reason, text in caught.value.message) == (Reason.TPM_MALFORMED, True), caught.value.message
