# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify an attestation document of Constellation, in numbered steps, some of which its own verifier does not do."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import Refusal
from ..reasons import Reason
from ..tpm.constants import ALG_SHA256, DIGEST_SIZES, PCR_COUNT, RH_ENDORSEMENT, RH_OWNER
from ..tpm.structures import PcrSelection
from . import tpm2
from .eventlog.replay import verify_replay
from .eventlog.tcg import parse_firmware_log
from .evidence import unobserved
from .tpm2 import parse_attestation_key, parse_quote, verify_signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..tpm.commands import LoadedKey
    from ..tpm.structures import Attest, ClockInfo, Public
    from .eventlog.tcg import FirmwareLog
    from .evidence import Reached
    from .tpm2 import QuotingTpm


# Constellation's vTPM attestation document: its JSON form, and the data that its quotes cover.
#
# The form is Go's ``encoding/json`` of go-tpm-tools' ``attest.Attestation`` inside an envelope: field names in snake
# case, left out when empty, byte strings in standard base64 with padding, bank numbers as the TPM's algorithm numbers,
# register numbers as decimal strings.

VARIANT = "qemu-vtpm"

STEPS = (
    "The policy permits documents of a Constellation peer",
    "The document parses",
    "Each register bank is in the document once, SHA-256 among them",
    "The attestation key is enrolled",
    "The user data are those expected",
    "Every quote verifies, over the user data and the nonce",
    "All quotes are of one run of the TPM",
    "The event log leads to the quoted values",
)
"""The checks of `verify_constellation_document`, in order, for display."""

VERIFY_SERVICE_USER_DATA = b"VerifyService"
"""The user data of documents from Constellation's verification service, and from ours in the same form."""

WARNING = (
    "qemu-vtpm evidence was trusted for its attestation key alone: no endorsement key vouches for it, and it is not "
    "bound to the connection"
)
"""The warning that a caller shows at each use of a verified document."""

MAX_DOCUMENT_BYTES = 1 << 20
"""Enough for an event log of 512 KiB in base64 and four quotes."""

MAX_INPUT_BYTES = 1024
"""The limit of a nonce and of user data; Constellation's have 32 and at most 64 bytes."""

_ENVELOPE = {"Attestation", "InstanceInfo", "UserData"}
_ATTESTATION = {
    "ak_pub",
    "quotes",
    "event_log",
    "instance_info",
    "canonical_event_log",
    "ak_cert",
    "intermediate_certs",
    "TeeAttestation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BankQuote:
    """One quote over one register bank: TPMS_ATTEST, TPMT_SIGNATURE, and the register values that it claims."""

    bank: int
    quote: bytes
    signature: bytes
    pcrs: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstellationDocument:
    """A parsed document; only its form is checked."""

    ak_public: bytes
    quotes: tuple[BankQuote, ...]
    event_log: bytes
    user_data: bytes

    def to_bytes(self) -> bytes:
        """Return the document as Constellation's Go code writes it, with the fields in the order of its structures."""
        attestation: dict[str, Any] = {
            "ak_pub": _base64(self.ak_public),
            "quotes": [_render(quote) for quote in self.quotes],
        }
        if self.event_log:
            attestation["event_log"] = _base64(self.event_log)
        attestation["TeeAttestation"] = None
        envelope = {"Attestation": attestation, "InstanceInfo": None, "UserData": _base64(self.user_data)}
        return json.dumps(envelope, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes) -> ConstellationDocument:
        """Return the document in ``data``; raises `Refusal` MESSAGE_TOO_LARGE or EVIDENCE_MALFORMED.

        Stricter than Go: duplicate names, unknown names, other types, base64 without padding, evidence of a TEE and
        instance information (which a `qemu-vtpm` document does not have) are refused.
        """
        if len(data) > MAX_DOCUMENT_BYTES:
            raise Refusal(
                f"expected at most {MAX_DOCUMENT_BYTES} bytes of attestation document, got {len(data)}",
                reason=Reason.MESSAGE_TOO_LARGE,
            )
        envelope = _fields(_json(data), "the document", known=_ENVELOPE)
        inner = _fields(envelope.get("Attestation"), "Attestation", known=_ATTESTATION)
        for name, holder in (("InstanceInfo", envelope), ("TeeAttestation", inner)):
            if holder.get(name):
                raise malformed(f"no {name} in a {VARIANT} document", "one")
        quotes = inner.get("quotes")
        if not isinstance(quotes, list) or not 1 <= len(quotes) <= len(DIGEST_SIZES):
            raise malformed(f"1 to {len(DIGEST_SIZES)} quotes", "another number")
        return cls(
            ak_public=_bytes(inner, "ak_pub"),
            quotes=tuple(_parse_quote(quote) for quote in quotes),
            event_log=_bytes(inner, "event_log", default=""),
            user_data=_bytes(envelope, "UserData"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstellationPolicy:
    """The conditions for a document of Constellation: an explicit permission, and the enrolled keys.

    ``attestation_keys``: names (TPM2B_NAME contents) of the attestation keys of known machines; without any, every
    document is refused.
    """

    insecure_constellation_peer: bool = False
    attestation_keys: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedConstellationDocument:
    """A document with all quotes verified; ``pcrs`` are the values of its SHA-256 bank.

    It states what the machine with this attestation key booted. It does not state which TPM holds the key.
    """

    ak_public: Public
    ak_name: bytes
    pcrs: Mapping[int, bytes]
    clock_info: ClockInfo
    firmware_log: FirmwareLog | None
    user_data: bytes


def document_digest(*, user_data: bytes, nonce: bytes, instance_info: bytes = b"") -> bytes:
    """Return the qualifying data of a document's quotes, which is hashed twice even without instance information.

    Raises `Refusal` BINDING_MALFORMED for a nonce or user data that is empty or longer than `MAX_INPUT_BYTES`.
    """
    for what, value in (("a nonce", nonce), ("user data", user_data)):
        if not 1 <= len(value) <= MAX_INPUT_BYTES:
            raise Refusal(
                f"expected {what} of 1 to {MAX_INPUT_BYTES} bytes, got {len(value)}", reason=Reason.BINDING_MALFORMED
            )
    return hashlib.sha256(instance_info + extra_data(user_data=user_data, nonce=nonce)).digest()


def extra_data(*, user_data: bytes, nonce: bytes) -> bytes:
    """Return SHA-256 of user data and nonce, which Constellation's aTLS calls extra data."""
    return hashlib.sha256(user_data + nonce).digest()


def malformed(expected: str, got: str) -> Refusal:
    """Return the refusal EVIDENCE_MALFORMED of a document."""
    return Refusal(f"expected {expected}, got {got}", reason=Reason.EVIDENCE_MALFORMED)


def _render(quote: BankQuote) -> dict[str, Any]:
    values = {str(index): _base64(value) for index, value in sorted(quote.pcrs.items())}
    pcrs = {"hash": quote.bank, "pcrs": values}
    return {"quote": _base64(quote.quote), "raw_sig": _base64(quote.signature), "pcrs": pcrs}


def _parse_quote(value: object) -> BankQuote:
    fields = _fields(value, "a quote", known={"quote", "raw_sig", "pcrs"})
    pcrs = _fields(fields.get("pcrs"), "pcrs", known={"hash", "pcrs"})
    bank = pcrs.get("hash")
    if not isinstance(bank, int) or isinstance(bank, bool) or bank not in DIGEST_SIZES:
        raise malformed(f"a register bank of {sorted(DIGEST_SIZES)}", f"{bank!r:.40}")
    values = _fields(pcrs.get("pcrs"), "register values", known={str(index) for index in range(PCR_COUNT)})
    parsed = {int(index): _bytes(values, index) for index in values}
    if any(len(digest) != DIGEST_SIZES[bank] for digest in parsed.values()):
        raise malformed(f"values of {DIGEST_SIZES[bank]} bytes in bank {bank}", "another length")
    return BankQuote(bank=bank, quote=_bytes(fields, "quote"), signature=_bytes(fields, "raw_sig"), pcrs=parsed)


def _json(data: bytes) -> object:
    try:
        return load_json(data, limit=MAX_DOCUMENT_BYTES)
    except ValueError as error:
        raise malformed("an attestation document in JSON", "something else") from error


def _fields(value: object, what: str, *, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(f"an object as {what}", type(value).__name__)
    unknown = sorted(set(value) - known)
    if unknown:
        raise malformed(f"no field {unknown[0][:40]!r} in {what}", "one")
    return value


def _bytes(fields: Mapping[str, Any], name: str, *, default: str | None = None) -> bytes:
    text = fields.get(name, default)
    if not isinstance(text, str):
        raise malformed(f"base64 text as {name}", type(text).__name__)
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise malformed(f"base64 text as {name}", "another text") from error


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def verify_constellation_document(
    document: bytes, *, user_data: bytes, nonce: bytes, policy: ConstellationPolicy, reached: Reached = unobserved
) -> VerifiedConstellationDocument:
    """Return what the machine behind ``document`` booted, after these steps.

    1. The policy sets `insecure_constellation_peer` (CONSTELLATION_NOT_PERMITTED).
    2. The document parses strictly (EVIDENCE_MALFORMED, MESSAGE_TOO_LARGE).
    3. Each register bank is in the document once, the SHA-256 bank among them (CONSTELLATION_BANKS).
    4. The attestation key is restricted and fixed to a TPM (AK_ATTRIBUTES), and it is enrolled
       (CONSTELLATION_KEY_UNKNOWN). Constellation's verifier trusts any key in the document.
    5. The user data are those expected (BINDING_MISMATCH).
    6. Every quote, not only the first good one, is genuine (QUOTE_MALFORMED, QUOTE_SIGNATURE, AK_HIERARCHY). It is over
       user data and nonce (BINDING_MISMATCH), all registers of its own bank (QUOTE_SELECTION) and the delivered values
       (QUOTE_DIGEST).
    7. All quotes are of one run of the TPM (TPM_RESET_BETWEEN).
    8. The event log, if there is one, leads to the quoted registers (EVENT_LOG_...).

    The caller must decide about the values (`policy.decision.decide`), show `WARNING`, and use its own nonce, once.
    ``nonce``, ``user_data``: as given to Constellation's verifier.
    """
    reached(1)
    _verify_permission(policy)
    reached(2)
    parsed = ConstellationDocument.parse(document)
    reached(3)
    chosen = _sha256_bank(parsed.quotes)
    reached(4)
    ak = _known_key(parsed.ak_public, policy)
    reached(5)
    _verify_user_data(parsed, user_data)
    reached(6)
    qualifying_data = document_digest(user_data=user_data, nonce=nonce)
    attests = {one.bank: _verify_quote(ak, one, qualifying_data) for one in parsed.quotes}
    reached(7)
    _verify_one_run(attests.values())
    reached(8)
    return VerifiedConstellationDocument(
        ak_public=ak,
        ak_name=ak.name(),
        pcrs=dict(chosen.pcrs),
        clock_info=attests[ALG_SHA256].clock_info,
        firmware_log=_verify_log(parsed.event_log, chosen),
        user_data=user_data,
    )


def claimed_key_name(document: bytes) -> bytes:
    """Return the name of the attestation key in ``document``; raises as steps 2 and 4.

    It proves nothing. It is for an admin who compares names, and for a caller that trusts any key on purpose.
    """
    return parse_attestation_key(ConstellationDocument.parse(document).ak_public).name()


def _verify_permission(policy: ConstellationPolicy) -> None:
    _require(
        policy.insecure_constellation_peer,
        "a policy that sets insecure_constellation_peer, got a policy that does not",
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
    # Part 3, 18.4: in every bank the digest uses the hash of the signing scheme, which step 4 requires to be SHA-256.
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


# Make a document in Constellation's form with the TPM of this machine.


def issue_constellation_document(
    tpm: QuotingTpm, ak: LoadedKey, *, nonce: bytes, user_data: bytes = VERIFY_SERVICE_USER_DATA
) -> bytes:
    """Return a document over ``user_data`` and the caller's ``nonce`` that Constellation's programs can read.

    It holds one quote over all registers of the SHA-256 bank, the only bank whose values Constellation's verifier
    compares. It has no event log, because in their form a log must not mention registers that the operating system
    extends. Raises `Refusal` BINDING_MALFORMED for an empty or too long nonce, and `TpmError`.
    """
    qualifying_data = document_digest(user_data=user_data, nonce=nonce)
    evidence = tpm2.issue(tpm, ak, qualifying_data=qualifying_data, pcrs=range(PCR_COUNT))
    quote = BankQuote(bank=ALG_SHA256, quote=evidence.quote, signature=evidence.signature, pcrs=evidence.pcrs)
    return ConstellationDocument(
        ak_public=evidence.ak_public, quotes=(quote,), event_log=b"", user_data=user_data
    ).to_bytes()
