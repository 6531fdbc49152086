# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state disk of the founder, the machine that init makes the first control plane (docs/adr/0048).

No cluster exists that could assign a disk id, so the machine draws one before it formats the disk. After a reset it
asks for the key of that id like any node, so the id is written to its journal once the init is over.
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
"""How often progress is reported: a wipe takes hours on a large disk, and silence would look like a failure."""


def _no_progress() -> Mapping[str, int]:
    return {}


@contextmanager
def followed(
    progress: Callable[[], Mapping[str, int]], report: Callable[[str], None], *, seconds: float = REPORT_SECONDS
) -> Iterator[None]:
    """Report the progress of a wipe every ``seconds`` as long as the block lasts.

    Report nothing if none runs.
    """
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
    """The founder's operations on its state disk."""

    def open(self, bundle: KeyBundle, *, report: Callable[[str], None]) -> None:
        """Open the disk, and format an unused one first; ``report`` gets the progress.

        Raises STATE_DISK_…, LUKS_….
        """

    def settle(self) -> None:
        """Write the disk's id to the node's journal, once the cluster is made."""


class FoundingDisk:
    """The disk that the site names for this machine, encrypted with the leading key of the init's bundle."""

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
        """Open ``disk``; ``random`` draws its id, which ``note`` stores; ``progress`` is `wipe_progress`."""
        self._disk = disk
        self._machine = machine
        self._journal = journal
        self._random = random
        self._note = note or FounderDisk()
        self._progress = progress

    def open(self, bundle: KeyBundle, *, report: Callable[[str], None]) -> None:
        """Open the disk. A volume that is known from an interrupted init is never formatted again."""
        disk = self._note.drawn(self._random)
        key, *_others = bundle.ring.disk_keys(disk)
        with followed(self._progress, report):
            self._disk.open(disk_id=disk.uuid, key=key, member=False)

    def settle(self) -> None:
        """Write disk id and phase to the journal if the init of this machine has ended; else change nothing."""
        settle_founder(self._machine, self._journal, note=self._note)


def settle_founder(machine: Machine, journal: NodeJournal, *, note: FounderDisk | None = None) -> None:
    """Record a founder in its journal as joined, with the disk id that it drew.

    Changes nothing on a machine that joined, that has no state disk, or whose init has not ended. Raises
    DISK_ID_MALFORMED, NODE_JOURNAL_MALFORMED.
    """
    disk = (note or FounderDisk()).load()
    if disk is None or not is_founded(machine):
        return
    state = journal.load()
    if (state.phase, state.disk_id) != (NodePhase.JOINED, disk.uuid):
        journal.enter(NodePhase.JOINED, disk_id=disk.uuid)


def is_founded(machine: Machine) -> bool:
    """Return whether an init has ended on this machine."""
    progress = machine.journal.load()
    if progress is None or progress.operation != "init":
        return False
    return set(progress.done) >= {phase.name for phase in INIT_PHASES}
