# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's identity, and its evidence over a caller's challenge, for the purpose `verify` only.

A process that can get any quote from the TPM can impersonate the machine. So the process on the network has no TPM: it
calls the witness, which has only these two calls (docs/adr/0012). A third call, for a document in Constellation's
form, is answered only if the node's administrator turns it on by name (docs/adr/0019).
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
"""The limit for Constellation's call; its program sends 32 bytes."""

_CHANNEL_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The current facts of the node: the id of its cluster (32 bytes), and the logs of its boot."""

    cluster_id: bytes
    logs: EventLogs


class Witness:
    """Answers the calls with this machine's TPM, one at a time, and uses the TPM at most half of the time.

    After each quote the TPM pauses for as long as the quote took. So callers cannot block the machine's own use of the
    TPM (join, unlock). The identity is read from the TPM once.
    """

    def __init__(
        self,
        *,
        attester: Callable[[], AbstractContextManager[Attester]],
        facts: Callable[[], Facts],
        clock: Clock,
        insecure_constellation_verify: bool = False,
    ) -> None:
        """Store the collaborators: each answer opens the TPM by ``attester`` and reads ``facts`` again."""
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
        """Return the serialised `Testimony` for an unchanged challenge, bound to one channel (32 bytes each).

        ``source`` is not used: the network side limits the calls of each source.

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

        The document is bound to no channel: any machine that sees it can pass it on. No nonce gives a quote that is
        accepted elsewhere, because all other quotes are over digests of longer, labelled texts. Raises `Refusal`
        CONSTELLATION_VERIFY_OFF, BINDING_MALFORMED, and `TpmError`.
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
        """Hold the lock; before that, pause for as long as the last quote took."""
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
    """Raise `Refusal` BINDING_MALFORMED if ``nonce`` is empty or too long for a document."""
    if not 1 <= len(nonce) <= MAX_NONCE_BYTES:
        raise Refusal(
            f"expected a nonce of 1 to {MAX_NONCE_BYTES} bytes, got {len(nonce)}", reason=Reason.BINDING_MALFORMED
        )
