# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a document of Constellation's form, in numbered steps that close what its own verifier leaves open."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from ...errors import Refusal
from ...reasons import Reason
from ...tpm import ALG_SHA256, PCR_COUNT, RH_ENDORSEMENT, RH_OWNER, PcrSelection
from ..eventlog import parse_firmware_log, verify_replay
from ..tpm2 import parse_attestation_key, parse_quote, verify_signature
from .types import ConstellationDocument, VerifiedConstellationDocument, document_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...tpm import Attest, Public
    from ..eventlog import FirmwareLog
    from .types import BankQuote, ConstellationPolicy


def verify_constellation_document(
    document: bytes, *, user_data: bytes, nonce: bytes, policy: ConstellationPolicy
) -> VerifiedConstellationDocument:
    """Return what the machine behind ``document`` booted, after these steps.

    1. The policy names such peers, `insecure_constellation_peer` (CONSTELLATION_NOT_PERMITTED).
    2. The document has the form of one, strictly (EVIDENCE_MALFORMED, MESSAGE_TOO_LARGE).
    3. Each register bank is in it once, that of SHA-256 among them (CONSTELLATION_BANKS).
    4. The attestation key is restricted and fixed to a TPM (AK_ATTRIBUTES), and one of those enrolled
       (CONSTELLATION_KEY_UNKNOWN): theirs believes any key that the document brings along.
    5. The user data are those expected (BINDING_MISMATCH).
    6. Every quote, not the first good one, is genuine (QUOTE_MALFORMED, QUOTE_SIGNATURE, AK_HIERARCHY), over user data
       and nonce (BINDING_MISMATCH), over all registers of its own bank (QUOTE_SELECTION) and over the values delivered
       (QUOTE_DIGEST).
    7. All quotes are of one run of the TPM (TPM_RESET_BETWEEN).
    8. An event log, if there is one, leads to the quoted registers (EVENT_LOG_...).

    The caller owes: the judgement of the values (`policy.decide`), showing `WARNING`, and that the nonce was its own
    and is used once. ``nonce``, ``user_data``: as handed to their verifier.
    """
    _verify_permission(policy)  # 1
    parsed = ConstellationDocument.parse(document)  # 2
    chosen = _sha256_bank(parsed.quotes)  # 3
    ak = _known_key(parsed.ak_public, policy)  # 4
    _verify_user_data(parsed, user_data)  # 5
    qualifying_data = document_digest(user_data=user_data, nonce=nonce)
    attests = {one.bank: _verify_quote(ak, one, qualifying_data) for one in parsed.quotes}  # 6
    _verify_one_run(attests.values())  # 7
    return VerifiedConstellationDocument(
        ak_public=ak,
        ak_name=ak.name(),
        pcrs=dict(chosen.pcrs),
        clock_info=attests[ALG_SHA256].clock_info,
        firmware_log=_verify_log(parsed.event_log, chosen),  # 8
        user_data=user_data,
    )


def claimed_key_name(document: bytes) -> bytes:
    """Return the name of the attestation key that ``document`` brings along; raises as steps 2 and 4.

    Nothing is proven by it. It is for a person who compares names, and for who believes any key on purpose.
    """
    return parse_attestation_key(ConstellationDocument.parse(document).ak_public).name()


def _verify_permission(policy: ConstellationPolicy) -> None:
    _require(
        policy.insecure_constellation_peer,
        "a policy that names insecure_constellation_peer, got one that does not",
        Reason.CONSTELLATION_NOT_PERMITTED,
    )


def _sha256_bank(quotes: tuple[BankQuote, ...]) -> BankQuote:
    banks = [quote.bank for quote in quotes]
    chosen = [quote for quote in quotes if quote.bank == ALG_SHA256]
    if len(set(banks)) != len(banks) or not chosen:
        raise Refusal(
            f"expected each register bank once, bank {ALG_SHA256} (SHA-256) among them, got {banks}",
            reason=Reason.CONSTELLATION_BANKS,
        )
    return chosen[0]


def _known_key(data: bytes, policy: ConstellationPolicy) -> Public:
    ak = parse_attestation_key(data)
    _require(
        ak.name() in policy.attestation_keys,
        f"an enrolled attestation key, got the key {ak.name().hex()}",
        Reason.CONSTELLATION_KEY_UNKNOWN,
    )
    return ak


def _verify_user_data(parsed: ConstellationDocument, user_data: bytes) -> None:
    _require(
        hmac.compare_digest(parsed.user_data, user_data),
        f"a document for {user_data.hex()[:128]}, got one for {parsed.user_data.hex()[:128]}",
        Reason.BINDING_MISMATCH,
    )


def _verify_quote(ak: Public, quoted: BankQuote, qualifying_data: bytes) -> Attest:
    attest = parse_quote(quoted.quote)
    verify_signature(ak, quoted.quote, quoted.signature)
    _require(
        attest.qualified_signer in {ak.qualified_name(RH_OWNER), ak.qualified_name(RH_ENDORSEMENT)},
        "a primary key of the owner or the endorsement hierarchy as signer, got another",
        Reason.AK_HIERARCHY,
    )
    _require(
        hmac.compare_digest(attest.extra_data, qualifying_data),
        f"a quote over {qualifying_data.hex()}, got one over {attest.extra_data.hex() or 'nothing'}",
        Reason.BINDING_MISMATCH,
    )
    _verify_values(attest, quoted)
    return attest


def _verify_values(attest: Attest, quoted: BankQuote) -> None:
    wanted = PcrSelection.of(range(PCR_COUNT), bank=quoted.bank)
    _require(
        attest.pcr_selections == (wanted,) and tuple(sorted(quoted.pcrs)) == wanted.indices,
        f"a quote over the {PCR_COUNT} registers of bank {quoted.bank} and their values, got another selection",
        Reason.QUOTE_SELECTION,
    )
    # Part 3, 18.4: the digest is of the signing scheme's hash, which step 4 demands to be SHA-256, in every bank.
    digest = hashlib.sha256(b"".join(quoted.pcrs[index] for index in wanted.indices)).digest()
    _require(
        hmac.compare_digest(attest.pcr_digest, digest),
        f"values of bank {quoted.bank} whose digest is {attest.pcr_digest.hex()}, got {digest.hex()}",
        Reason.QUOTE_DIGEST,
    )


def _verify_one_run(attests: Iterable[Attest]) -> None:
    runs = {(one.clock_info.reset_count, one.clock_info.restart_count) for one in attests}
    _require(
        len(runs) == 1,
        f"quotes of one run of the TPM, got resets and restarts {sorted(runs)}",
        Reason.TPM_RESET_BETWEEN,
    )


def _verify_log(event_log: bytes, chosen: BankQuote) -> FirmwareLog | None:
    if not event_log:
        return None
    firmware = parse_firmware_log(event_log)
    verify_replay(chosen.pcrs, firmware, ())
    return firmware


def _require(holds: bool, sentence: str, reason: Reason) -> None:
    if not holds:
        raise Refusal(f"expected {sentence}", reason=reason)
