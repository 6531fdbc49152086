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
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..evidence.challenge import BindingContext, Challenge, ChallengeRequest, answer
from ..evidence.constellation import issue_constellation_document
from ..reasons import Reason
from ..transport.binding import Purpose
from .verification_exchange import Testimony, exchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..core.host import Clock
    from ..evidence.evidence import EventLogs
    from .handshake_evidence import Attester


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

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge as it came, bound to one channel (32 bytes each).

        The ``source`` does not matter: the network side bounds what each may ask.

        Raises `Refusal` BINDING_MALFORMED without a channel, PROTOCOL_VERSION, EVIDENCE_MALFORMED, and `TpmError`.
        """
        del source
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
