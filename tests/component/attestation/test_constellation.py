# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's document with real TPMs: ours, and one as its nodes make it (RSA key of the owner, two banks)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.constellation import (
    VERIFY_SERVICE_USER_DATA,
    BankQuote,
    ConstellationDocument,
    ConstellationPolicy,
    VerifiedConstellationDocument,
    document_digest,
    issue_constellation_document,
    verify_constellation_document,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import constants as c
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import Command, Password
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_RSA,
    ALG_RSASSA,
    ALG_SHA256,
    ALG_SHA384,
    RH_OWNER,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_attestation_key
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    PcrSelection,
    Public,
    RsaParameters,
    Scheme,
    Symmetric,
    marshal_selections,
    sized,
    u16,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

NONCE = b"n" * 32
BANKS = (ALG_SHA256, ALG_SHA384)
THEIR_KEY = Public(
    type=ALG_RSA,
    name_alg=ALG_SHA256,
    attributes=0x00050072,
    auth_policy=b"",
    parameters=RsaParameters(symmetric=Symmetric(), scheme=Scheme(ALG_RSASSA, ALG_SHA256), key_bits=2048, exponent=0),
    unique=b"",
)


def verified(document: bytes, *known: LoadedKey) -> VerifiedConstellationDocument:
    keys = frozenset(key.name for key in known)
    policy = ConstellationPolicy(insecure_constellation_peer=True, attestation_keys=keys)
    return verify_constellation_document(document, user_data=VERIFY_SERVICE_USER_DATA, nonce=NONCE, policy=policy)


def quoted(tpm: Tpm, key: LoadedKey, bank: int) -> BankQuote:
    """Return a real quote over all registers of ``bank``, which our own client never asks for."""
    digest = document_digest(user_data=VERIFY_SERVICE_USER_DATA, nonce=NONCE)
    selection = PcrSelection.of(range(24), bank=bank)
    parameters = sized(digest) + u16(c.ALG_NULL) + marshal_selections([selection])
    command = Command(code=c.CC_QUOTE, handles=(key.entity,), parameters=parameters, auths=(Password(),))
    reader = tpm.execute(command).parameters
    attest, signature = reader.sized(c.MAX_BUFFER), reader.rest()
    return BankQuote(bank=bank, quote=attest, signature=signature, pcrs=tpm.pcr_read(range(24), bank=bank))


def theirs(tpm: Tpm, key: LoadedKey) -> ConstellationDocument:
    return ConstellationDocument(
        ak_public=key.public.marshal(),
        quotes=tuple(quoted(tpm, key, bank) for bank in BANKS),
        event_log=b"",
        user_data=VERIFY_SERVICE_USER_DATA,
    )


def test_a_real_tpm_issues_ours(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    with opened(swtpms("a")) as tpm:
        ak = load_attestation_key(tpm)
        tpm.pcr_event(4, b"boot loader")
        found = verified(issue_constellation_document(tpm, ak, nonce=NONCE), ak)
        assert found.pcrs == tpm.pcr_read(range(24))


def test_a_document_as_their_nodes_make_it(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    """Sizes are those that their own were measured to have: 280 bytes of key, 145 of quote, 262 of signature."""
    with opened(swtpms("banks", banks="sha256,sha384")) as tpm:
        key = tpm.create_primary(RH_OWNER, THEIR_KEY)
        tpm.pcr_event(9, b"initrd")
        document = theirs(tpm, key)
        first = document.quotes[0]
        assert (len(document.ak_public), len(first.quote), len(first.signature)) == (280, 145, 262)
        assert verified(document.to_bytes(), key).pcrs == tpm.pcr_read(range(24))


def test_a_real_second_bank_beside_invented_values(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    """The confusion that their verifier does not notice: a genuine SHA-384 quote, and values that nobody signed."""
    with opened(swtpms("banks", banks="sha256,sha384")) as tpm:
        key = tpm.create_primary(RH_OWNER, THEIR_KEY)
        real = quoted(tpm, key, ALG_SHA384)
        invented = BankQuote(
            bank=ALG_SHA256, quote=real.quote, signature=real.signature, pcrs=dict.fromkeys(range(24), bytes(32))
        )
        document = ConstellationDocument(
            ak_public=key.public.marshal(),
            quotes=(real, invented),
            event_log=b"",
            user_data=VERIFY_SERVICE_USER_DATA,
        )
    with pytest.raises(Refusal) as caught:
        verified(document.to_bytes(), key)
    assert caught.value.code == "QUOTE_SELECTION"


def test_a_real_key_that_nobody_enrolled(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    with opened(swtpms("a")) as tpm:
        ak = load_attestation_key(tpm)
        document = issue_constellation_document(tpm, ak, nonce=NONCE)
    with pytest.raises(Refusal) as caught:
        verified(document)
    assert caught.value.code == "CONSTELLATION_KEY_UNKNOWN"
