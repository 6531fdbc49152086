# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Challenge and answer: one flow for ssh and gRPC.

The verifier encrypts a secret to the endorsement key and the attestation key's name. The machine proves that it
decrypted the secret, and one digest over the whole exchange becomes the qualifying data of one quote.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..core.rate import Shares
from ..errors import Refusal, TpmError
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..tpm.constants import PCR_COUNT
from ..tpm.structures import Public
from ..tpm.templates import Credential, make_credential
from ..transport.binding import (
    MINIMUM_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    BindingInput,
    Purpose,
    binding_digest,
    challenge_proof,
)
from ..transport.sealed_box import OneTimeKey
from .evidence import CHALLENGE_ID_BYTES, DIGEST_BYTES, MAX_STRUCTURE_BYTES, BoundEvidence
from .registry import DEFAULT_VARIANT, admission

if TYPE_CHECKING:
    from ..core.host import Random
    from ..policy.identity import TpmRecord
    from ..tpm.commands import LoadedKey
    from .evidence import EventLogs
    from .tpm2 import QuotingTpm

LIFETIME = timedelta(seconds=60)
"""How long an answer may take: a TPM needs a second, a busy machine a few."""

MAX_OPEN_CHALLENGES = 1024
MAX_CERTIFICATES = 17
"""The endorsement key's certificate and sixteen issuers, as `tpm.load_endorsement_key` reads them from NV memory."""

MAX_CERTIFICATE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRequest:
    """A machine's request for a challenge, ``attested.v1.ChallengeRequest``; certificates are DER, the EK's first."""

    ek_public: Public
    ak_public: Public
    ek_certificates: tuple[bytes, ...] = ()
    protocol_version: int = PROTOCOL_VERSION

    def to_bytes(self) -> bytes:
        """Return the serialised message."""
        message = message_class("attested.v1.ChallengeRequest")(
            ek_public=self.ek_public.marshal(),
            ak_public=self.ak_public.marshal(),
            ek_certificates=self.ek_certificates,
            protocol_version=self.protocol_version,
        )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> ChallengeRequest:
        """Return the request in ``data``; raises `Refusal` EVIDENCE_MALFORMED, MESSAGE_MALFORMED or _TOO_LARGE."""
        limit = 2 * MAX_STRUCTURE_BYTES + MAX_CERTIFICATES * MAX_CERTIFICATE_BYTES
        message = parse("attested.v1.ChallengeRequest", data, limit=limit)
        if len(message.ek_certificates) > MAX_CERTIFICATES:
            raise _malformed(f"at most {MAX_CERTIFICATES} certificates", f"{len(message.ek_certificates)}")
        return cls(
            ek_public=_public(message.ek_public),
            ak_public=_public(message.ak_public),
            ek_certificates=tuple(message.ek_certificates),
            protocol_version=message.protocol_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The challenge for a machine, ``attested.v1.ChallengeResponse``: public, but only one TPM can answer it."""

    id: bytes
    nonce: bytes
    credential: Credential
    selection: tuple[int, ...]
    server_time_unix_seconds: int
    protocol_version: int = PROTOCOL_VERSION

    def to_bytes(self) -> bytes:
        """Return the serialised message."""
        message = message_class("attested.v1.ChallengeResponse")(
            challenge_id=self.id,
            nonce=self.nonce,
            credential_blob=self.credential.id_object,
            encrypted_secret=self.credential.encrypted_secret,
            pcr_selection=self.selection,
            server_time_unix_seconds=self.server_time_unix_seconds,
            protocol_version=self.protocol_version,
        )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> Challenge:
        """Return the challenge in ``data``; raises `Refusal` EVIDENCE_MALFORMED, MESSAGE_MALFORMED or _TOO_LARGE."""
        message = parse("attested.v1.ChallengeResponse", data, limit=4 * MAX_STRUCTURE_BYTES)
        selection = tuple(message.pcr_selection)
        if not selection or selection != tuple(sorted(set(selection))) or selection[-1] >= PCR_COUNT:
            raise _malformed(f"registers below {PCR_COUNT} once and in order", f"{list(selection)[:PCR_COUNT]}")
        if (len(message.challenge_id), len(message.nonce)) != (CHALLENGE_ID_BYTES, DIGEST_BYTES):
            raise _malformed(f"an id of {CHALLENGE_ID_BYTES} and a nonce of {DIGEST_BYTES} bytes", "other lengths")
        return cls(
            id=message.challenge_id,
            nonce=message.nonce,
            credential=Credential(message.credential_blob, message.encrypted_secret),
            selection=selection,
            server_time_unix_seconds=message.server_time_unix_seconds,
            protocol_version=message.protocol_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRecord:
    """The verifier's record of a challenge, kept in memory until its answer; every check reads it.

    ``tpm``: the state of the machine's TPM at its last evidence before the challenge, if it is known.
    """

    challenge: Challenge
    ek_public: Public
    ak_public: Public
    ek_certificates: tuple[bytes, ...]
    expires: datetime
    secret: bytes = field(repr=False)
    tpm: TpmRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingContext:
    """The parts of the exchange that both sides know without the answer.

    ``exporter`` (RFC 9266) and ``spki_sha256`` (of the attesting side's certificate): 32 bytes each, empty over ssh.
    ``request``: the bytes of the call as sent, event logs included; without a call, the serialised `EventLogs`.
    """

    purpose: Purpose
    cluster_id: bytes
    request: bytes = field(repr=False)
    exporter: bytes = b""
    spki_sha256: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a challenge: ``bound`` goes to the verifier; the rest stays here and decrypts its response."""

    bound: BoundEvidence
    one_time_key: OneTimeKey
    binding: bytes
    secret: bytes = field(repr=False)


def new_challenge(
    request: ChallengeRequest,
    *,
    selection: tuple[int, ...],
    random: Random,
    now: datetime,
    minimum_version: int = MINIMUM_PROTOCOL_VERSION,
) -> tuple[Challenge, ChallengeRecord]:
    """Return a challenge for the two keys of ``request``, and its record. It stores nothing.

    ``selection``: the registers to quote. Raises `Refusal` PROTOCOL_VERSION, AK_ATTRIBUTES,
    AK_KEY_UNSUPPORTED, `TpmError` TPM_EK_UNSUPPORTED.
    """
    version = agreed_version(request.protocol_version, minimum=minimum_version)
    admission(DEFAULT_VARIANT).verify_key(request.ak_public)
    secret = random.token(DIGEST_BYTES)
    challenge = Challenge(
        id=random.token(CHALLENGE_ID_BYTES),
        nonce=random.token(DIGEST_BYTES),
        credential=make_credential(request.ek_public, request.ak_public.name(), secret, random),
        selection=tuple(sorted(set(selection))),
        server_time_unix_seconds=int(now.timestamp()),
        protocol_version=version,
    )
    record = ChallengeRecord(
        challenge=challenge,
        ek_public=request.ek_public,
        ak_public=request.ak_public,
        ek_certificates=request.ek_certificates,
        expires=now + LIFETIME,
        secret=secret,
    )
    return challenge, record


def agreed_version(offered: int, *, minimum: int = MINIMUM_PROTOCOL_VERSION) -> int:
    """Return the protocol version to use with a peer that offers ``offered``; raises `Refusal` PROTOCOL_VERSION."""
    if not minimum <= offered <= PROTOCOL_VERSION:
        raise Refusal(
            f"expected a protocol version from {minimum} to {PROTOCOL_VERSION}, got {offered}",
            reason=Reason.PROTOCOL_VERSION,
        )
    return offered


def answer(
    tpm: QuotingTpm,
    challenge: Challenge,
    context: BindingContext,
    *,
    ek: LoadedKey,
    ak: LoadedKey,
    logs: EventLogs,
    minimum_version: int = MINIMUM_PROTOCOL_VERSION,
) -> Answer:
    """Decrypt the challenge's secret, make a one-time key, and quote the registers over the whole exchange.

    ``logs`` are those inside ``context.request``. Raises `Refusal` PROTOCOL_VERSION, BINDING_MALFORMED or
    EVIDENCE_MALFORMED, and `TpmError` if the TPM refuses (TPM_CREDENTIAL_REFUSED: a challenge for other keys).
    """
    agreed_version(challenge.protocol_version, minimum=minimum_version)
    secret = tpm.activate_credential(ak, ek, challenge.credential)
    if len(secret) != DIGEST_BYTES:
        raise _malformed(f"a secret of {DIGEST_BYTES} bytes", f"{len(secret)}")
    key = OneTimeKey.generate()
    proof = challenge_proof(secret, challenge.nonce)
    binding = exchange_digest(challenge, context, proof=proof, hpke_public=key.public)
    bound = BoundEvidence(
        challenge_id=challenge.id,
        evidence=admission(DEFAULT_VARIANT).issue(tpm, ak, qualifying_data=binding, pcrs=challenge.selection),
        hpke_public=key.public,
        proof=proof,
        event_logs_sha256=logs.digest(),
    )
    return Answer(bound=bound, one_time_key=key, binding=binding, secret=secret)


def exchange_digest(challenge: Challenge, context: BindingContext, *, proof: bytes, hpke_public: bytes) -> bytes:
    """Return B, the digest of one exchange, which both sides compute."""
    return binding_digest(
        BindingInput(
            purpose=context.purpose,
            cluster_id=context.cluster_id,
            exporter=context.exporter,
            spki_sha256=context.spki_sha256,
            nonce=challenge.nonce,
            proof=proof,
            request_sha256=hashlib.sha256(context.request).digest(),
            hpke_public=hpke_public,
            protocol_version=challenge.protocol_version,
        )
    )


class ChallengeStore:
    """Open challenges in memory, for several threads; each is taken once, whether or not its answer is accepted."""

    def __init__(self, *, capacity: int = MAX_OPEN_CHALLENGES) -> None:
        """Keep at most ``capacity`` records."""
        self._capacity = capacity
        self._records: dict[bytes, ChallengeRecord] = {}
        self._shares: Shares[bytes] = Shares()
        self._lock = threading.Lock()

    def add(self, record: ChallengeRecord, *, now: datetime, source: str = "") -> None:
        """Keep ``record`` for ``source``; if the store is full, drop the oldest record of the source with the most.

        Raises `Refusal` CHALLENGES_EXHAUSTED if no other source has more records than ``source``.
        """
        with self._lock:
            if len(self._records) >= self._capacity:
                self._make_room(source, now)
            self._records[record.challenge.id] = record
            self._shares.add(source, record.challenge.id)

    def _make_room(self, source: str, now: datetime) -> None:
        for key in [key for key, kept in self._records.items() if kept.expires <= now]:
            self._remove(key)
        if len(self._records) < self._capacity:
            return
        flooder = self._shares.source(self._shares.of_the_largest())
        if self._shares.count(source) >= self._shares.count(flooder):
            raise Refusal(
                f"expected at most {self._capacity} open challenges, got one more", reason=Reason.CHALLENGES_EXHAUSTED
            )
        self._remove(self._shares.oldest(flooder))

    def _remove(self, key: bytes) -> ChallengeRecord | None:
        self._shares.remove(key)
        return self._records.pop(key, None)

    def take(self, challenge_id: bytes) -> ChallengeRecord:
        """Remove the record and return it; raises `Refusal` CHALLENGE_UNKNOWN."""
        with self._lock:
            record = self._remove(challenge_id)
        if record is None:
            raise Refusal(
                f"expected an open challenge, got the id {challenge_id.hex()[:64]}", reason=Reason.CHALLENGE_UNKNOWN
            )
        return record


def _public(data: bytes) -> Public:
    try:
        return Public.parse(data)
    except TpmError as error:
        raise Refusal(error.message, reason=Reason.EVIDENCE_MALFORMED) from error


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected} in the challenge, got {got}", reason=Reason.EVIDENCE_MALFORMED)
