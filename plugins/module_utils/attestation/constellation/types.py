# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's vTPM attestation document: its JSON form, and what its quotes are over.

The form is Go's ``encoding/json`` of go-tpm-tools' ``attest.Attestation`` inside an envelope: field names in snake
case, left out when empty, byte strings in standard base64 with padding, bank numbers as the TPM's algorithm numbers,
register numbers as decimal strings.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import Refusal
from ...reasons import Reason
from ...system import load_json
from ...tpm import DIGEST_SIZES, PCR_COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...tpm import ClockInfo, Public
    from ..eventlog import FirmwareLog

VARIANT = "qemu-vtpm"

VERIFY_SERVICE_USER_DATA = b"VerifyService"
"""The user data of documents that their verification service answers with, and ours in their form."""

WARNING = (
    "qemu-vtpm evidence was believed for its attestation key alone: no endorsement key stands behind it, and it is not "
    "bound to the connection"
)
"""What a caller shows at each use of a verified document."""

MAX_DOCUMENT_BYTES = 1 << 20
"""An event log of 512 KiB in base64, four quotes, and room."""

MAX_INPUT_BYTES = 1024
"""Of a nonce or of user data: theirs are 32 and at most 64 bytes."""

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
    """One quote over one register bank: TPMS_ATTEST, TPMT_SIGNATURE, and the values that it claims to be over."""

    bank: int
    quote: bytes
    signature: bytes
    pcrs: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstellationDocument:
    """A document as it came: nothing in it is checked but its form."""

    ak_public: bytes
    quotes: tuple[BankQuote, ...]
    event_log: bytes
    user_data: bytes

    def to_bytes(self) -> bytes:
        """Return the document as their Go code writes it, fields in the order of their structures."""
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

        Stricter than Go: a name twice, a name that their structures do not have, another type, base64 without
        padding, evidence of a TEE or instance information (which a `qemu-vtpm` has not) are refused.
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
    """What makes a foreign document acceptable at all: the permission by its name, and the keys that are enrolled.

    ``attestation_keys``: names (TPM2B_NAME contents) of the attestation keys of known machines; none means refusal.
    """

    insecure_constellation_peer: bool = False
    attestation_keys: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedConstellationDocument:
    """A document whose every quote was verified; ``pcrs`` are the values of its SHA-256 bank.

    It says what the machine with this attestation key booted, and nothing of which TPM holds the key.
    """

    ak_public: Public
    ak_name: bytes
    pcrs: Mapping[int, bytes]
    clock_info: ClockInfo
    firmware_log: FirmwareLog | None
    user_data: bytes


def document_digest(*, user_data: bytes, nonce: bytes, instance_info: bytes = b"") -> bytes:
    """Return the qualifying data of a document's quotes: hashed twice, also where there is no instance information.

    Raises `Refusal` BINDING_MALFORMED for a nonce or user data that is empty or longer than `MAX_INPUT_BYTES`.
    """
    for what, value in (("a nonce", nonce), ("user data", user_data)):
        if not 1 <= len(value) <= MAX_INPUT_BYTES:
            raise Refusal(
                f"expected {what} of 1 to {MAX_INPUT_BYTES} bytes, got {len(value)}", reason=Reason.BINDING_MALFORMED
            )
    return hashlib.sha256(instance_info + extra_data(user_data=user_data, nonce=nonce)).digest()


def extra_data(*, user_data: bytes, nonce: bytes) -> bytes:
    """Return what their aTLS calls extra data, SHA-256 of user data and nonce."""
    return hashlib.sha256(user_data + nonce).digest()


def malformed(expected: str, got: str) -> Refusal:
    """Return the refusal of a document that has another form."""
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
