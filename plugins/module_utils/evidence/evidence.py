# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence that a machine sends, as objects and as protobuf messages of bounded size; nothing is verified here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import Refusal
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..tpm.constants import PCR_COUNT
from ..transport.binding import label, length_prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_EVIDENCE_BYTES = 8192
"""A quote over all registers with an RSA key is below 2 KiB."""

MAX_STRUCTURE_BYTES = 1024
MAX_COMMAND_LINE_BYTES = 4096

DIGEST_BYTES = 32
CHALLENGE_ID_BYTES = 16


class Reached(Protocol):
    """A callback that a verifier calls when each of its steps begins."""

    def __call__(self, step: int, /) -> object:
        """Note that step number ``step`` begins; the first is 1."""


def unobserved(_step: int, /) -> None:
    """Note nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A quote (TPMS_ATTEST) with its key (TPMT_PUBLIC), TPMT_SIGNATURE and register values (SHA-256 bank)."""

    variant: str
    ak_public: bytes
    quote: bytes
    signature: bytes
    pcrs: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        """Return the serialised ``attested.v1.Evidence``."""
        message = message_class("attested.v1.Evidence")(
            variant=self.variant, ak_public=self.ak_public, quote=self.quote, signature=self.signature
        )
        for index, digest in sorted(self.pcrs.items()):
            message.pcrs.add(index=index, digest=digest)
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> Evidence:
        """Return the evidence in ``data``; raises `Refusal` EVIDENCE_MALFORMED, MESSAGE_MALFORMED or _TOO_LARGE."""
        message = parse("attested.v1.Evidence", data, limit=MAX_EVIDENCE_BYTES)
        indices = [value.index for value in message.pcrs]
        if indices != sorted(set(indices)) or not all(index < PCR_COUNT for index in indices):
            raise _malformed(f"registers below {PCR_COUNT} once and in order", f"{indices[:PCR_COUNT]}")
        if not all(len(value.digest) == DIGEST_BYTES for value in message.pcrs):
            raise _malformed(f"register values of {DIGEST_BYTES} bytes", "another length")
        if max(len(message.ak_public), len(message.quote), len(message.signature)) > MAX_STRUCTURE_BYTES:
            raise _malformed(f"TPM structures of at most {MAX_STRUCTURE_BYTES} bytes", "a larger one")
        return cls(
            variant=message.variant,
            ak_public=message.ak_public,
            quote=message.quote,
            signature=message.signature,
            pcrs={value.index: value.digest for value in message.pcrs},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogs:
    """The logs of one boot as files: of the firmware, systemd and the node lock, and /proc/cmdline as a hint."""

    firmware: bytes = b""
    userspace: bytes = b""
    nodelock: bytes = b""
    command_line: bytes = b""

    def digest(self) -> bytes:
        """Return SHA-256 over all logs, each with a length prefix."""
        parts = (self.firmware, self.userspace, self.nodelock, self.command_line)
        return hashlib.sha256(length_prefixed(label("event-logs"), *parts)).digest()

    def to_bytes(self) -> bytes:
        """Return the serialised ``attested.v1.EventLogs``."""
        message = message_class("attested.v1.EventLogs")(
            firmware=self.firmware, userspace=self.userspace, nodelock=self.nodelock, command_line=self.command_line
        )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> EventLogs:
        """Return the logs in ``data``; raises `Refusal` MESSAGE_MALFORMED or MESSAGE_TOO_LARGE.

        The machine that sent the logs is not known yet, so the refusal is not recorded for a machine
        (`keyservice.attestation_state`).
        """
        message = parse("attested.v1.EventLogs", data)
        if len(message.command_line) > MAX_COMMAND_LINE_BYTES:
            raise Refusal(
                f"expected at most {MAX_COMMAND_LINE_BYTES} bytes of command line, got {len(message.command_line)}",
                reason=Reason.MESSAGE_TOO_LARGE,
            )
        return cls(
            firmware=message.firmware,
            userspace=message.userspace,
            nodelock=message.nodelock,
            command_line=message.command_line,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundEvidence:
    """The answer to a challenge: evidence E2 and the values that its quote binds, ``attested.v1.Binding``."""

    challenge_id: bytes
    evidence: Evidence
    hpke_public: bytes
    proof: bytes
    event_logs_sha256: bytes

    def to_bytes(self) -> bytes:
        """Return the serialised ``attested.v1.Binding``, the value of the gRPC metadata attested-binding-bin."""
        message = message_class("attested.v1.Binding")(
            challenge_id=self.challenge_id,
            evidence=self.evidence.to_bytes(),
            hpke_public=self.hpke_public,
            proof=self.proof,
            event_logs_sha256=self.event_logs_sha256,
        )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> BoundEvidence:
        """Return the answer in ``data``; raises `Refusal` EVIDENCE_MALFORMED, MESSAGE_MALFORMED or _TOO_LARGE."""
        message = parse("attested.v1.Binding", data, limit=2 * MAX_EVIDENCE_BYTES)
        fixed = {"challenge_id": CHALLENGE_ID_BYTES, "hpke_public": DIGEST_BYTES, "proof": DIGEST_BYTES}
        fixed["event_logs_sha256"] = DIGEST_BYTES
        wrong = [name for name, size in fixed.items() if len(getattr(message, name)) != size]
        if wrong:
            raise _malformed(f"{wrong[0]} of {fixed[wrong[0]]} bytes", f"{len(getattr(message, wrong[0]))}")
        return cls(
            challenge_id=message.challenge_id,
            evidence=Evidence.parse(message.evidence),
            hpke_public=message.hpke_public,
            proof=message.proof,
            event_logs_sha256=message.event_logs_sha256,
        )


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected} in the evidence, got {got}", reason=Reason.EVIDENCE_MALFORMED)
