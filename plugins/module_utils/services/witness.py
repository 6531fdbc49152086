# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's word about itself: who it is, and evidence over somebody's challenge, for the purpose `verify` alone.

Whoever may ask the TPM for any quote may pass for the machine. So the process that speaks to the network has no TPM: it
asks the witness, which answers these two questions and no others (docs/adr/0012). A third one, for a document in
Constellation's form, is answered only where the node's administrator permits it by name (docs/adr/0019).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import Refusal
from ..evidence.challenge import BindingContext, Challenge, ChallengeRequest, answer
from ..evidence.constellation import issue_constellation_document
from ..keyservice.framing import SocketAsker
from ..proto.messages import message_class
from ..reasons import Reason
from ..transport.binding import Purpose
from .verification_exchange import Testimony, exchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..core.host import Clock
    from ..evidence.evidence import EventLogs
    from .handshake_evidence import Attester


WITNESS_REQUEST = "attested.v1.WitnessRequest"
WITNESS_RESPONSE = "attested.v1.WitnessResponse"

MAX_QUESTION_BYTES = 8192

MAX_NONCE_BYTES = 64
"""Of Constellation's question; its program sends 32."""

_CHANNEL_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the node knows of itself now: the cluster that it belongs to (32 bytes), and the logs of its boot."""

    cluster_id: bytes
    logs: EventLogs


class Witness:
    """Answers the questions with this machine's TPM, one at a time and at most half of the time.

    After each quote the TPM rests for as long as it took, so that strangers cannot keep the machine's own business
    (joining, unlocking) from it. Identity is read from the TPM once.
    """

    def __init__(
        self,
        *,
        attester: Callable[[], AbstractContextManager[Attester]],
        facts: Callable[[], Facts],
        clock: Clock,
        insecure_constellation_verify: bool = False,
    ) -> None:
        """Open the TPM by ``attester`` for each answer, and take ``facts`` as they are then."""
        self._attester = attester
        self._facts = facts
        self._clock = clock
        self._insecure_constellation_verify = insecure_constellation_verify
        self._turn = threading.Lock()
        self._identity = b""
        self._rested_at = 0.0

    def answer(self, request: Any) -> Any:
        """Return the `WitnessResponse` to a parsed `WitnessRequest`; raises what refuses it."""
        response = message_class(WITNESS_RESPONSE)()
        kind = request.WhichOneof("question")
        if kind == "identify":
            response.identity = self.identity()
        elif kind == "testify":
            call = request.testify
            response.testimony = self.testimony(call.challenge, exporter=call.exporter, spki_sha256=call.spki_sha256)
        elif kind == "constellation":
            response.document = self.document(request.constellation.nonce)
        else:
            raise Refusal("expected one of the three questions, got another", reason=Reason.MESSAGE_MALFORMED)
        return response

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest` of this machine; raises `TpmError`."""
        with self._turn:
            if not self._identity:
                with self._attester() as one:
                    request = ChallengeRequest(
                        ek_public=one.ek.public, ek_certificates=one.ek.certificates, ak_public=one.ak.public
                    )
                self._identity = request.to_bytes()
            return self._identity

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came, bound to one channel (32 bytes each).

        Raises `Refusal` BINDING_MALFORMED without a channel, PROTOCOL_VERSION, EVIDENCE_MALFORMED, and `TpmError`.
        """
        if (len(exporter), len(spki_sha256)) != (_CHANNEL_BYTES, _CHANNEL_BYTES):
            raise Refusal(
                f"expected exporter and key hash of {_CHANNEL_BYTES} bytes, got {len(exporter)} and {len(spki_sha256)}",
                reason=Reason.BINDING_MALFORMED,
            )
        parsed = Challenge.parse(challenge)
        facts = self._facts()
        logs = facts.logs.to_bytes()
        context = BindingContext(
            purpose=Purpose.VERIFY,
            cluster_id=facts.cluster_id,
            request=exchanged(challenge, logs),
            exporter=exporter,
            spki_sha256=spki_sha256,
        )
        with self._resting(), self._attester() as one:
            given = answer(one.tpm, parsed, context, ek=one.ek, ak=one.ak, logs=facts.logs)
        return Testimony(bound=given.bound, event_logs=logs, exporter=exporter, spki_sha256=spki_sha256).to_bytes()

    def document(self, nonce: bytes) -> bytes:
        """Return a document in Constellation's form over the caller's nonce and its constant user data.

        It is bound to no channel: whoever sees the answer can pass it on. No nonce gives a quote that counts elsewhere:
        all of ours are over digests of longer, labelled texts. Raises `Refusal` CONSTELLATION_VERIFY_OFF,
        BINDING_MALFORMED, and `TpmError`.
        """
        if not self._insecure_constellation_verify:
            raise Refusal(
                "expected a node that answers in Constellation's form, this one does not",
                reason=Reason.CONSTELLATION_VERIFY_OFF,
            )
        require_nonce(nonce)
        with self._resting(), self._attester() as one:
            return issue_constellation_document(one.tpm, one.ak, nonce=nonce)

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Hold the turn; before it the TPM rests for as long as it worked the last time."""
        with self._turn:
            pause = self._rested_at - self._clock.monotonic()
            if pause > 0:
                self._clock.sleep(pause)
            begun = self._clock.monotonic()
            try:
                yield
            finally:
                ended = self._clock.monotonic()
                self._rested_at = 2 * ended - begun


def require_nonce(nonce: bytes) -> None:
    """Raise `Refusal` BINDING_MALFORMED unless a document may be over ``nonce``: neither empty nor too long."""
    if not 1 <= len(nonce) <= MAX_NONCE_BYTES:
        raise Refusal(
            f"expected a nonce of 1 to {MAX_NONCE_BYTES} bytes, got {len(nonce)}", reason=Reason.BINDING_MALFORMED
        )


# Asking the witness over its unix socket, one connection a question.

WITNESS_SOCKET = "/run/attested/witness.sock"

_ANSWER_SECONDS = 25.0
"""A hardware TPM needs up to a second for each of the answers that wait before this one."""


class EvidencePort:
    """The network side's view of a process that holds the TPM; every call raises what refused it, or what is absent."""

    def __init__(self, asker: SocketAsker, *, request_name: str) -> None:
        """Ask by ``asker`` with messages of this name; a subclass has the questions of its own."""
        self._asker = asker
        self._request_name = request_name

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""
        message = self._new(correlation_id)
        message.identify.SetInParent()
        return bytes((await self._asker.ask(message)).identity)

    async def testimony(
        self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, correlation_id: str, source: str = ""
    ) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came; ``source`` where that process logs who asks."""
        message = self._new(correlation_id, source)
        message.testify.challenge = challenge
        message.testify.exporter = exporter
        message.testify.spki_sha256 = spki_sha256
        return bytes((await self._asker.ask(message)).testimony)

    def _new(self, correlation_id: str, source: str = "") -> Any:
        who = {"source": source} if source else {}
        return message_class(self._request_name)(correlation_id=correlation_id, **who)


class AsyncWitness(EvidencePort):
    """The network side's view of the witness; raises its refusals, WITNESS_UNREACHABLE."""

    def __init__(self, path: str | Path = WITNESS_SOCKET, *, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask at ``path``."""
        asker = SocketAsker(
            path,
            response_name=WITNESS_RESPONSE,
            timeout_seconds=timeout_seconds,
            whose="the witness",
            absent=Reason.WITNESS_UNREACHABLE,
        )
        super().__init__(asker, request_name=WITNESS_REQUEST)

    async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
        """Return a document in Constellation's form over ``nonce``."""
        message = self._new(correlation_id)
        message.constellation.nonce = nonce
        return bytes((await self._asker.ask(message)).document)
