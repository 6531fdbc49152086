# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try a sealed offer of keys and open the disk. A short-lived process opens the box, not this long-running one."""

from __future__ import annotations

from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.command import SystemRunner
from ..core.host import SystemRandom
from ..disk.process import call_key_process
from . import recovery_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..core.command import Runner
    from ..core.host import Random
    from ..keyservice.derive import DiskId
    from ..transport.sealed_box import OneTimeKey
    from .recovery_contest import Contender, Contest

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
