# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of recovery, in the process that holds the TPM: identity, evidence, verification of requests."""

from __future__ import annotations

import threading
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.command import SystemRunner
from ..core.host import SystemRandom
from ..disk.process import call_key_process
from ..errors import AttestedError, Refusal
from ..reasons import Reason
from ..transport.binding import Purpose
from . import recovery_helper
from .exchanges import Exchanges
from .init_admin import verify_admin
from .recovery_messages import RecoverAnswer, RecoverOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from ..core.command import Runner
    from ..core.host import Clock, Random
    from ..evidence.challenge import Answer
    from ..keyservice.derive import DiskId
    from ..transport.pins import JoinCaPins
    from ..transport.sealed_box import OneTimeKey
    from .handshake_evidence import Attester
    from .machine_socket import Begin
    from .witness import Facts


# Decide whether a ticket of the cluster or an admin opens the disk of this boot. The first right key wins.


class Contender(Enum):
    """The two ways by which a locked node gets its key."""

    REJOIN = "rejoin"
    RECOVERY = "recovery"


class Contest:
    """One claim for all threads of the process that opens the disk.

    States and the only ways between them::

        OPEN --claim(by)--> HELD(by) --the block ends well--> WON(by)
        HELD(by) --the block raises--> OPEN

    A contender claims once it has a key that opens the header, and before any step that cannot be undone. A contender
    that finds the claim held is refused at once, so it does not wait with a key in memory. Only a reset of the machine
    leaves WON; in OPEN the other contender may try after the first one failed.
    """

    def __init__(self) -> None:
        """Begin open."""
        self._lock = threading.Lock()
        self._holder: Contender | None = None
        self._won = threading.Event()

    @property
    def winner(self) -> Contender | None:
        """The contender that has opened the disk, None while it is closed."""
        return self._holder if self._won.is_set() else None

    def wait(self, seconds: float) -> bool:
        """Wait until the disk is open; return whether it is, so that the other contender stops."""
        return self._won.wait(seconds)

    def require_open(self) -> None:
        """Raise RECOVERY_RACE_LOST if the claim is held or won."""
        with self._lock:
            self._require_free()

    @contextmanager
    def claim(self, by: Contender) -> Iterator[None]:
        """Hold the claim while the block opens the disk; raises RECOVERY_RACE_LOST."""
        with self._lock:
            self._require_free()
            self._holder = by
        try:
            yield
        except BaseException:
            with self._lock:
                self._holder = None
            raise
        self._won.set()

    def _require_free(self) -> None:
        if self._holder is not None:
            done = "has opened it" if self._won.is_set() else "is opening it"
            raise Refusal(f"expected a closed disk, {self._holder.value} {done}", reason=Reason.RECOVERY_RACE_LOST)


# Try a sealed offer of keys and open the disk. A short-lived process opens the box, not this long-running one.

_TRY_SECONDS = 150.0  # a key derivation of cryptsetup on a machine that is still booting
_NAME_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A box and the keys that open it, all of which are needed. The salt (32 bytes) is public."""

    box: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    binding: bytes
    one_time_key: OneTimeKey
    measurement_salt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """The locked node: its device, the id that is assigned to its disk, its cluster; ``memory`` is on tmpfs."""

    device: str
    disk: DiskId
    cluster_id: bytes
    memory: Path = Path("/run/attested/recovery")
    mounts: Path = Path("/proc/self/mounts")


class Trial(Protocol):
    """Checks whether an offer holds this disk's key."""

    def tried(self, offer: Offer) -> AbstractContextManager[Path]:
        """Yield a file on tmpfs with the key, and remove it at the end; raises why the offer is refused.

        SEAL_UNOPENABLE, MESSAGE_MALFORMED, DISK_ID_MALFORMED, RECOVERY_DISK_DIFFERS, CLUSTER_ID_MISMATCH, LUKS_...,
        RECOVERY_KEY_WRONG.
        """


class Opener(Protocol):
    """Opens the disk with a key that is known to be right, and locks the node to its cluster."""

    def open(self, key_file: Path) -> None:
        """Open the disk; a repeated call continues after a failed attempt."""


class HelperTrial:
    """The real trial: a separate process opens the box and tries the key on a copy of the header."""

    def __init__(
        self,
        locked: Locked,
        *,
        runner: Runner | None = None,
        random: Random | None = None,
        program: str = recovery_helper.__name__,
    ) -> None:
        """Try keys of ``locked``; ``program`` is the module to run."""
        self._locked = locked
        self._runner = runner or SystemRunner()
        self._random = random or SystemRandom()
        self._program = program

    @contextmanager
    def tried(self, offer: Offer) -> Iterator[Path]:
        """Yield a file on tmpfs with the key, in a directory of this trial only."""
        place = self._locked.memory / f"offer-{self._random.token(_NAME_BYTES).hex()}"
        job = {
            "box": _text(offer.box),
            "secret": _text(offer.secret),
            "binding": _text(offer.binding),
            "one_time_key": _text(offer.one_time_key.export()),
            "measurement_salt": _text(offer.measurement_salt),
            "cluster_id": _text(self._locked.cluster_id),
            "device": self._locked.device,
            "uuid": self._locked.disk.uuid,
            "memory": str(place),
            "mounts": str(self._locked.mounts),
        }
        try:
            call_key_process(self._program, job, runner=self._runner, timeout_seconds=_TRY_SECONDS)
            yield place / recovery_helper.KEY_FILE
        finally:
            recovery_helper.remove_directory(place)


class Unlocking:
    """Opens the disk with an offer of either contender."""

    def __init__(self, trial: Trial, opener: Opener, contest: Contest) -> None:
        """Store the collaborators."""
        self._trial = trial
        self._opener = opener
        self._contest = contest

    def offer(self, offer: Offer, *, by: Contender, record: Callable[[], None]) -> None:
        """Open the disk with what ``offer`` holds.

        1. The claim is neither held nor won (RECOVERY_RACE_LOST). 2. The key is this disk's (`Trial.tried`); nothing
        has changed so far. 3. The claim is taken (RECOVERY_RACE_LOST). 4. ``record`` writes the decision; if it raises,
        nothing is opened. 5. The disk is opened: a failure frees the claim, and is raised.
        """
        self._contest.require_open()  # 1
        with self._trial.tried(offer) as key_file, self._contest.claim(by):  # 2, 3
            record()  # 4
            self._opener.open(key_file)  # 5


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


EVENT = "recovery"


class Record(Protocol):
    """The record of decisions; `AuditTrail` is the real one."""

    def decided(
        self,
        event: str,
        fields: Mapping[str, object],
        *,
        refusal: Mapping[str, object] | None = None,
        source: str = "",
    ) -> None:
        """Write the record of a decision, or count a refusal without a ``source``; raises AUDIT_UNWRITABLE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An authenticated request: the serial number of the admin's certificate, and the offer."""

    admin: str
    offer: Offer


class RecoveryDesk:
    """Answers the three calls of recovery; may be used by several threads."""

    def __init__(
        self,
        *,
        attester: Callable[[], AbstractContextManager[Attester]],
        facts: Callable[[], Facts],
        pins: JoinCaPins,
        unlocking: Unlocking,
        record: Record,
        clock: Clock,
    ) -> None:
        """Store the collaborators: each answer opens the TPM by ``attester``; ``pins`` certify the admins."""
        self._exchanges = Exchanges(purpose=Purpose.RECOVER, attester=attester, facts=facts, clock=clock)
        self._facts = facts
        self._pins = pins
        self._unlocking = unlocking
        self._record = record
        self._clock = clock

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest` of this machine; raises `TpmError`."""
        return self._exchanges.identity()

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge, for the purpose `recover`; raises as `Exchanges` does."""
        return self._exchanges.testimony(challenge, exporter=exporter, spki_sha256=spki_sha256, source=source)

    def recover(self, begin: Begin, *, correlation_id: str) -> bytes:
        """Return the serialised `RecoverResponse` to a request; raises `Refusal` if the admin is not authenticated.

        1. It is a request, its secrets sealed. MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, SECRETS_IN_CLEAR
        2. It belongs to an open exchange of this channel. CHALLENGE_UNKNOWN, CHANNEL_NOT_BOUND
        3. An admin of this cluster has signed it for this exchange. ADMIN_UNAUTHENTICATED, ADMIN_...
        4. The exchange is used up. The admin is authenticated now, so the response has every later failure's code.
        5. The disk is not open yet, and the key is this disk's: the steps of `Unlocking.offer`.

        Every decision is recorded, that of step 5 before the disk is opened. Refusals of an unauthenticated caller are
        only counted.
        """
        fields: dict[str, object] = {"source": begin.source, "correlation_id": correlation_id}
        try:
            known = self._admitted(begin)
        except AttestedError as error:
            self._refused(error, fields)
            raise
        fields["admin"] = known.admin
        try:
            self._unlocking.offer(
                known.offer, by=Contender.RECOVERY, record=lambda: self._record.decided(EVENT, fields)
            )
        except AttestedError as error:
            self._refused(error, fields)
            return RecoverAnswer(code=error.code, message=error.message, hint=error.hint).to_bytes()
        return RecoverAnswer().to_bytes()

    def _admitted(self, begin: Begin) -> _Known:
        with self._exchanges.turn:
            order = RecoverOrder.parse(begin.request)  # 1
            given = self._exchanges.of(  # 2
                order.challenge_id, exporter=begin.exporter, spki_sha256=begin.spki_sha256
            )
            admin = self._admin(begin, given)  # 3
            self._exchanges.use_up(order.challenge_id)  # 4
        offer = Offer(
            box=order.sealed,
            secret=given.secret,
            binding=given.binding,
            one_time_key=given.one_time_key,
            measurement_salt=order.measurement_salt,
        )
        return _Known(admin=admin, offer=offer)

    def _admin(self, begin: Begin, given: Answer) -> str:
        if not begin.admin_proof:
            raise Refusal("expected an admin's proof, got none", reason=Reason.ADMIN_UNAUTHENTICATED)
        return verify_admin(
            begin.admin_proof,
            pins=self._pins,
            cluster_id=self._facts().cluster_id,
            binding=given.binding,
            request=begin.request,
            now=self._clock.now(),
            purpose=Purpose.RECOVER,
        )

    def _refused(self, error: AttestedError, fields: Mapping[str, object]) -> None:
        refusal = {"reason": error.code, "detail": error.message}
        self._record.decided(EVENT, fields, refusal=refusal, source=str(fields.get("admin", "")))
