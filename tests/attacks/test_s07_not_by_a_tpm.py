# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S7: bytes that no TPM made, under a signature that verifies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import Answer

THREAT = Threat(
    id="S7",
    title="Quote not made by a TPM",
    case="CVE-2024-29038, CVE-2024-29040",
    bed="bytes",
    stops=(
        ("evidence/tpm2.py step 2", "QUOTE_MALFORMED"),
        ("evidence/tpm2.py step 3", "QUOTE_SIGNATURE"),
        ("evidence/tpm2.py step 1", "AK_ATTRIBUTES"),
    ),
)

RESTRICTED = 1 << 16


def signed(exchange: Exchange, given: Answer, data: bytes) -> Answer:
    """Return the answer with other bytes under its attestation key's signature."""
    quote = exchange.tpm.signed_bytes(data)
    evidence = replace(given.bound.evidence, quote=quote.attest, signature=quote.signature)
    return replace(given, bound=replace(given.bound, evidence=evidence))


def changed(**fields: object) -> Callable[[bytes], bytes]:
    return lambda data: replace(Attest.parse(data), **fields).marshal()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(changed(magic=0), id="no magic"),
        pytest.param(changed(magic=0xFF544346), id="a magic that is one off"),
        pytest.param(changed(type=0x8017, body=b"x"), id="a certification instead of a quote"),
        pytest.param(lambda data: data + b"\x00", id="a byte behind the quote"),
        pytest.param(lambda data: data[:-1], id="a byte missing"),
        pytest.param(lambda data: b"attacker's text", id="text"),
        pytest.param(lambda data: b"", id="nothing"),
    ],
)
def test_signed_bytes_that_are_no_quote(exchange: Exchange, change: Callable[[bytes], bytes]) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(signed(exchange, given, given.bound.evidence.quote), record)
    forged = signed(exchange, given, change(given.bound.evidence.quote))
    assert code_of(lambda: exchange.verified(forged, record)) == "QUOTE_MALFORMED"


def test_a_good_quote_signed_by_a_plain_key(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(given, record)
    exchange.tpm._ak_key = Exchange().tpm._ak_key
    forged = signed(exchange, given, given.bound.evidence.quote)
    assert code_of(lambda: exchange.verified(forged, record)) == "QUOTE_SIGNATURE"


def test_an_unrestricted_key_of_a_tpm_gets_no_challenge(exchange: Exchange) -> None:
    """It would sign bytes that look like a quote, so it is refused before there is anything to sign."""
    public = exchange.tpm.ak.public
    assert exchange.challenged(ak_public=public)
    unrestricted = replace(public, attributes=public.attributes & ~RESTRICTED)
    assert code_of(lambda: exchange.challenged(ak_public=unrestricted)) == "AK_ATTRIBUTES"
