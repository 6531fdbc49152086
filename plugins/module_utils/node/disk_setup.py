# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state disk of the machine that an init makes the first control plane of (docs/adr/0048).

Nobody can have assigned an id to it: the machine draws one before it formats. After a reset it comes back by that id as
any node does, which is why its journal learns it once the init is over.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ..keyservice.initial_disk import FounderDisk
from ..kubeadm.phases import INIT_PHASES
from .journal import NodePhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..core.host import Random
    from ..keyservice.key_bundle import KeyBundle
    from ..kubeadm.operation import Machine
    from .journal import NodeJournal
    from .order import StateDisk


REPORT_SECONDS = 20.0
"""A wipe takes hours on a large disk, and an admin who hears nothing for minutes gives up."""


def _no_progress() -> Mapping[str, int]:
    return {}


@contextmanager
def followed(
    progress: Callable[[], Mapping[str, int]], report: Callable[[str], None], *, seconds: float = REPORT_SECONDS
) -> Iterator[None]:
    """Say every ``seconds`` how far the wipe is, as long as the block lasts and there is one."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(seconds):
            found = progress()
            if found:
                report(f"Wipe the state disk: {100 * found['done_bytes'] // found['size_bytes']} %")

    follower = threading.Thread(target=follow, name="wipe", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()


class FoundersDisk(Protocol):
    """What a founder needs of the disk."""

    def open(self, bundle: KeyBundle, *, report: Callable[[str], None]) -> None:
        """Open the disk, made before if nobody has used it, which ``report`` hears of; raises STATE_DISK_…, LUKS_…."""

    def settle(self) -> None:
        """Let the node's journal know the disk, once the cluster is made."""


class FoundingDisk:
    """The disk that a site names for the machine, under the leading key of the bundle that an init brings."""

    def __init__(
        self,
        disk: StateDisk,
        *,
        machine: Machine,
        journal: NodeJournal,
        random: Random,
        note: FounderDisk | None = None,
        progress: Callable[[], Mapping[str, int]] = _no_progress,
    ) -> None:
        """Open ``disk``; ``random`` draws its id, which is kept in ``note``; ``progress`` as of `wipe_progress`."""
        self._disk = disk
        self._machine = machine
        self._journal = journal
        self._random = random
        self._note = note or FounderDisk()
        self._progress = progress

    def open(self, bundle: KeyBundle, *, report: Callable[[str], None]) -> None:
        """Open it. A reset in the middle of an init finds the volume as it was: a known one is never made anew."""
        disk = self._note.drawn(self._random)
        key, *_others = bundle.ring.disk_keys(disk)
        with followed(self._progress, report):
            self._disk.open(disk_id=disk.uuid, key=key, member=False)

    def settle(self) -> None:
        """Write disk and phase into the journal of a machine whose init has ended; else change nothing."""
        settle_founder(self._machine, self._journal, note=self._note)


def settle_founder(machine: Machine, journal: NodeJournal, *, note: FounderDisk | None = None) -> None:
    """Let the journal say that the machine that made its cluster is a node with the disk that it drew an id for.

    A machine of another way, without a disk, or whose init has not ended is left as it is. Raises DISK_ID_MALFORMED,
    NODE_JOURNAL_MALFORMED.
    """
    disk = (note or FounderDisk()).load()
    if disk is None or not is_founded(machine):
        return
    state = journal.load()
    if (state.phase, state.disk_id) != (NodePhase.JOINED, disk.uuid):
        journal.enter(NodePhase.JOINED, disk_id=disk.uuid)


def is_founded(machine: Machine) -> bool:
    """Say whether an init has come to its end on this machine."""
    progress = machine.journal.load()
    if progress is None or progress.operation != "init":
        return False
    return set(progress.done) >= {phase.name for phase in INIT_PHASES}
