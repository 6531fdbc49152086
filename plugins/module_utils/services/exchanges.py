# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exchanges by which a machine proves itself before an admin sends it secrets, at init and at recovery.

One exchange is a quote over one channel, with the keys that open the box sealed to it. It is kept in memory until a
request uses it up.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.rate import Shares
from ..errors import Refusal
from ..evidence.challenge import BindingContext, Challenge, ChallengeRequest, answer
from ..reasons import Reason
from .verification_exchange import Testimony, exchanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ..core.host import Clock
    from ..evidence.challenge import Answer
    from ..evidence.evidence import EventLogs
    from ..transport.binding import Purpose
    from .handshake_evidence import Attester
    from .witness import Facts

OPEN_SECONDS = 300.0
"""Time from the quote to the request. The admin's machine judges and seals in between, without a person."""

_TRIES = 3
_MAX_OPEN = 128
_CHANNEL_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """One exchange that has a quote and is not used yet."""

    answer: Answer = field(repr=False)
    exporter: bytes
    spki_sha256: bytes
    expires: float


class Exchanges:
    """Makes the evidence of this machine and keeps the open exchanges; a caller of `of` holds the lock ``turn``."""

    def __init__(
        self,
        *,
        purpose: Purpose,
        attester: Callable[[], AbstractContextManager[Attester]],
        facts: Callable[[], Facts],
        clock: Clock,
    ) -> None:
        """Store the collaborators: each answer opens the TPM by ``attester`` and reads ``facts`` again."""
        self.turn = threading.Lock()
        self._purpose = purpose
        self._attester = attester
        self._facts = facts
        self._clock = clock
        self._open: dict[bytes, _Open] = {}
        self._shares: Shares[bytes] = Shares()

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest` of this machine; raises `TpmError`."""
        with self.turn, self._attester() as one:
            return ChallengeRequest(
                ek_public=one.ek.public, ek_certificates=one.ek.certificates, ak_public=one.ak.public
            ).to_bytes()

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge, and keep the exchange open.

        If too many are open, the oldest exchange of the ``source`` with the most is dropped. So a source that calls
        without end does not close the exchanges of the others.

        Raises `Refusal` BINDING_MALFORMED without a channel, PROTOCOL_VERSION, EVIDENCE_MALFORMED, and `TpmError`.
        """
        if (len(exporter), len(spki_sha256)) != (_CHANNEL_BYTES, _CHANNEL_BYTES):
            raise Refusal(
                f"expected exporter and key hash of {_CHANNEL_BYTES} bytes, got {len(exporter)} and {len(spki_sha256)}",
                reason=Reason.BINDING_MALFORMED,
            )
        parsed = Challenge.parse(challenge)
        with self.turn, self._attester() as one:
            given, logs = self._answered(one, challenge, parsed, exporter=exporter, spki_sha256=spki_sha256)
            self._keep(given, exporter=exporter, spki_sha256=spki_sha256, source=source)
        return Testimony(
            bound=given.bound, event_logs=logs.to_bytes(), exporter=exporter, spki_sha256=spki_sha256
        ).to_bytes()

    def _answered(
        self, one: Attester, challenge: bytes, parsed: Challenge, *, exporter: bytes, spki_sha256: bytes
    ) -> tuple[Answer, EventLogs]:
        """Return an answer with the logs that explain it; try again if the node lock changed the logs meanwhile."""
        for _try in range(_TRIES):
            facts = self._facts()
            context = BindingContext(
                purpose=self._purpose,
                cluster_id=facts.cluster_id,
                request=exchanged(challenge, facts.logs.to_bytes()),
                exporter=exporter,
                spki_sha256=spki_sha256,
            )
            given = answer(one.tpm, parsed, context, ek=one.ek, ak=one.ak, logs=facts.logs)
            if self._facts().logs == facts.logs:
                break
        return given, facts.logs

    def of(self, challenge_id: bytes, *, exporter: bytes, spki_sha256: bytes) -> Answer:
        """Return the answer of an open exchange of this channel; raises CHALLENGE_UNKNOWN, CHANNEL_NOT_BOUND."""
        kept = self._open.get(challenge_id)
        if kept is None or kept.expires < self._clock.monotonic():
            raise Refusal("expected an exchange that is open, got another", reason=Reason.CHALLENGE_UNKNOWN)
        if (kept.exporter, kept.spki_sha256) != (exporter, spki_sha256):
            raise Refusal("expected the connection of the exchange, got another", reason=Reason.CHANNEL_NOT_BOUND)
        return kept.answer

    def use_up(self, challenge_id: bytes) -> None:
        """Remove an exchange, so that a box sealed to it opens at most once."""
        del self._open[challenge_id]
        self._shares.remove(challenge_id)

    def _keep(self, given: Answer, *, exporter: bytes, spki_sha256: bytes, source: str) -> None:
        expires = self._clock.monotonic() + OPEN_SECONDS
        self._shares.add(source, given.bound.challenge_id)
        self._open[given.bound.challenge_id] = _Open(
            answer=given, exporter=exporter, spki_sha256=spki_sha256, expires=expires
        )
        while len(self._open) > _MAX_OPEN:
            self.use_up(self._shares.of_the_largest())
