# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claim of a machine: which contender takes the node lock, and for what (`/run/attested/claim.json`).

It is written before the lock is taken, and is void unless the lock is held.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import AttestedError, Refusal, SystemFault
from ..evidence.eventlog.nodelock import LockState
from ..evidence.node_lock import require_open_to
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..evidence.eventlog.nodelock import LockReading
    from ..evidence.node_lock import Acquisition
    from .order import Lock


DEFAULT_PATH = Path("/run/attested/claim.json")
_VERSION = 1
_LIMIT = 4096
_FIELDS = {"version", "contender", "request"}
_REQUEST = re.compile(r"[0-9a-f]{64}")


class Contender(Enum):
    """The two ways in which a machine becomes a node."""

    INIT = "init"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class Claim:
    """A contender's claim to the lock.

    ``request`` is the digest of an init request (64 hex digits), else empty.
    """

    contender: Contender
    request: str = ""

    def to_bytes(self) -> bytes:
        """Return the content of the claim file."""
        body = {"version": _VERSION, "contender": self.contender.value, "request": self.request}
        return json.dumps(body).encode("ascii") + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Claim:
        """Return the claim in ``data``; raises CLAIM_MALFORMED."""
        try:
            return _claim(json.loads(data))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SystemFault("expected a claim, found something else", reason=Reason.CLAIM_MALFORMED) from error


class ClaimFile:
    """The file of the claim; it is on tmpfs, so a reset of the machine clears it together with the PCRs."""

    def __init__(self, path: Path = DEFAULT_PATH) -> None:
        """Store the path."""
        self._path = path

    def load(self) -> Claim | None:
        """Return the claim, None if there is none; raises CLAIM_MALFORMED."""
        return Claim.parse(read_bytes(self._path, limit=_LIMIT)) if self._path.exists() else None

    def write(self, claim: Claim) -> None:
        """Write ``claim``, which replaces an earlier one."""
        make_directory(self._path.parent, mode=0o711)
        write_atomic(self._path, claim.to_bytes())

    def remove(self) -> None:
        """Remove the file."""
        remove(self._path)


def _claim(body: dict[str, Any]) -> Claim:
    if set(body) != _FIELDS or body["version"] != _VERSION or body["version"] is True:
        raise ValueError("another form")
    claim = Claim(Contender(body["contender"]), body["request"])
    good = _REQUEST.fullmatch(claim.request) if claim.contender is Contender.INIT else claim.request == ""
    if not good:
        raise ValueError("another request")
    return claim


# The race of one machine: init or join, decided once by the one-way lock (docs/adr/0016).


class Race:
    """Lets the contenders of one machine at its lock, one at a time; the first that takes the lock wins.

    States and their only transition::

        OPEN --turn(claim).take()--> WON(claim)      one TPM2_PCR_Event, the claim written before it

    Only a reset of the machine opens the race again. A claim counts only while the lock is held. If a process is killed
    between its claim and the PCR event, the claim is void. If it is killed after the event, the claim says which
    contender continues. A turn that ends without `Turn.take`, or whose lock could not be taken, leaves the race open.

    A reset also clears the claim. After a reset in the middle of an init, `attested-unlock` takes the lock of the new
    boot with the keys of that init. So the first request that brings these keys continues, and claims the boot.
    """

    def __init__(
        self, lock: Lock, *, cluster_id: bytes, claims: ClaimFile, initialising: Callable[[], bool] = lambda: False
    ) -> None:
        """Race for ``lock`` on behalf of the cluster ``cluster_id`` (32 bytes).

        ``initialising`` returns whether this machine's disk records an init that has begun and not ended.
        """
        self._lock = lock
        self._cluster_id = cluster_id
        self._claims = claims
        self._initialising = initialising
        self._one_at_a_time = threading.Lock()

    @contextmanager
    def turn(self, mine: Claim) -> Iterator[Turn]:
        """Give the caller exclusive access to the lock.

        The caller must undo its preparations unless the lock was taken. Raises RACE_LOST if the other contender or a
        process outside of this race has won, INIT_REQUEST_DIFFERS if another init request has won, NODELOCK_FOREIGN,
        NODELOCK_OTHER_CLUSTER.
        """
        with self._one_at_a_time:
            reading = self._lock.read()
            require_open_to(reading, self._cluster_id)
            again = reading.state is LockState.LOCKED
            if again:
                self._require_mine(mine)
            yield Turn(self._lock, cluster_id=self._cluster_id, claims=self._claims, mine=mine, again=again)

    def winner(self) -> Claim | None:
        """Return the winning claim, None while the race is open or if no contender of it won.

        A running turn is awaited first.
        """
        with self._one_at_a_time:
            return self._claims.load() if self._is_ours(self._lock.read()) else None

    def _require_mine(self, mine: Claim) -> None:
        held = self._claims.load()
        if held is None and mine.contender is Contender.INIT and self._initialising():
            return
        require_winner(held, mine)

    def _is_ours(self, reading: LockReading) -> bool:
        return reading.state is LockState.LOCKED and reading.cluster_id == self._cluster_id


class Turn:
    """Exclusive access of one contender to the lock."""

    def __init__(self, lock: Lock, *, cluster_id: bytes, claims: ClaimFile, mine: Claim, again: bool) -> None:
        """Represent the claim ``mine``; ``again``: it has won before and continues."""
        self._lock = lock
        self._cluster_id = cluster_id
        self._claims = claims
        self._mine = mine
        self.again = again

    def take(self) -> Acquisition:
        """Take the lock; from here on a failure is repaired forward and never undone.

        Raises RACE_LOST if a process outside of this race was faster, and what the lock raises.
        """
        self._claims.write(self._mine)
        try:
            taken = self._lock.acquire(self._cluster_id)
        except AttestedError:
            self._settle()
            raise
        if not (taken.won or self.again):
            self._claims.remove()
            raise _lost("a process outside of this race")
        return taken

    def _settle(self) -> None:
        """Withdraw the claim unless the PCR event succeeded although its response was lost."""
        if not self.again and self._lock.read().state is not LockState.LOCKED:
            self._claims.remove()


def require_winner(held: Claim | None, mine: Claim) -> None:
    """Raise unless the claim on a taken lock is ``mine``: RACE_LOST, INIT_REQUEST_DIFFERS."""
    if held is None:
        raise _lost("a process outside of this race")
    if held.contender is not mine.contender:
        raise _lost(held.contender.value)
    if held.request != mine.request:
        raise Refusal(
            f"expected the init request {held.request[:16]}… to continue, got {mine.request[:16]}…",
            reason=Reason.INIT_REQUEST_DIFFERS,
        )


def _lost(winner: str) -> Refusal:
    return Refusal(f"expected an unclaimed machine, its lock was taken by {winner}", reason=Reason.RACE_LOST)
