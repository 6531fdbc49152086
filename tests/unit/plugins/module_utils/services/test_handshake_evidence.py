# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first evidence of a connection: a genuine quote over the service's nonce and the peer's key, or no connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import (
    Attester,
    DoorkeeperIssuer,
    DoorkeeperValidator,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import Callable

KEY, NONCE = b"k" * 32, b"n" * 32


def issued(tpm: SoftTpm) -> bytes:
    return DoorkeeperIssuer(Attester(tpm=tpm, ek=tpm.ek, ak=tpm.ak)).issue(user_data=KEY, nonce=NONCE)


def with_signature_of_another(document: bytes) -> bytes:
    return replace(Evidence.parse(document), signature=Evidence.parse(issued(SoftTpm())).signature).to_bytes()


def test_a_quote_over_the_nonce_and_the_key_names_its_attestation_key() -> None:
    tpm = SoftTpm()
    assert DoorkeeperValidator().validate(issued(tpm), user_data=KEY, nonce=NONCE) == tpm.ak.name


@pytest.mark.parametrize(
    ("change", "user_data", "nonce", "code"),
    [
        pytest.param(lambda given: given, KEY, b"o" * 32, "BINDING_MISMATCH", id="another nonce"),
        pytest.param(lambda given: given, b"x" * 32, NONCE, "BINDING_MISMATCH", id="another key"),
        pytest.param(with_signature_of_another, KEY, NONCE, "QUOTE_SIGNATURE", id="signature of another TPM"),
        pytest.param(lambda given: given[:-1], KEY, NONCE, "MESSAGE_MALFORMED", id="cut off"),
    ],
)
def test_any_other_evidence_is_refused(
    change: Callable[[bytes], bytes], user_data: bytes, nonce: bytes, code: str
) -> None:
    document = change(issued(SoftTpm()))
    assert code_of(lambda: DoorkeeperValidator().validate(document, user_data=user_data, nonce=nonce)) == code
