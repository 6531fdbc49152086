# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two calls of a verification, as bytes: the exchange of docs/protocol/transport.md with the node as the server.

    caller → node   Identify
    node → caller   ChallengeRequest: EK, its certificates, AK
    caller → node   Testify: ChallengeResponse, with the credential that only this TPM opens
    node → caller   Testimony: the bound quote E2 and the event logs, the node lock's among them

Before the caller's challenge no call uses the TPM, and no message holds a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..evidence.evidence import BoundEvidence, EventLogs
from ..proto.messages import message_class, method_path, parse
from ..transport.binding import length_prefixed

IDENTIFY = method_path("attested.v1.Verification", "Identify")
TESTIFY = method_path("attested.v1.Verification", "Testify")
GET_ATTESTATION = method_path("verify.API", "GetAttestation")
"""The call of Constellation's program, in plain text."""

MAX_REQUEST_BYTES = 4096
"""A challenge with an RSA-2048 credential has 0.5 KB."""

_TESTIMONY = "attested.v1.Testimony"


def exchanged(challenge: bytes, event_logs: bytes) -> bytes:
    """Return the request's part of the binding: the challenge as it was sent, then the event logs."""
    return length_prefixed(challenge, event_logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """A node's answer, not yet verified.

    ``event_logs`` is the serialised `EventLogs`, unchanged. ``exporter`` and ``spki_sha256`` are the channel as the
    node reports it: they only make a refusal more precise.
    """

    bound: BoundEvidence
    event_logs: bytes = field(repr=False)
    exporter: bytes
    spki_sha256: bytes

    def to_bytes(self) -> bytes:
        """Return the serialised ``attested.v1.Testimony``."""
        message = message_class(_TESTIMONY)(
            binding=self.bound.to_bytes(),
            event_logs=self.event_logs,
            exporter=self.exporter,
            spki_sha256=self.spki_sha256,
        )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> Testimony:
        """Return the testimony in ``data``; raises `Refusal` MESSAGE_..., EVIDENCE_MALFORMED."""
        message = parse(_TESTIMONY, data)
        return cls(
            bound=BoundEvidence.parse(message.binding),
            event_logs=message.event_logs,
            exporter=message.exporter,
            spki_sha256=message.spki_sha256,
        )

    def logs(self) -> EventLogs:
        """Return the parsed logs; raises as `EventLogs.parse`."""
        return EventLogs.parse(self.event_logs)
