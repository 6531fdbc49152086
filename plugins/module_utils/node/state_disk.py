# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the state disk of this machine before the node lock (docs/adr/0040, 0048); another process uses the keys."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..core.command import SystemRunner
from ..core.files import make_directory, read_bytes, remove, require_no_swap, require_tmpfs, write_atomic
from ..disk.gateway import LinuxDevice
from ..disk.paths import LEAST_BYTES, StatePaths
from ..disk.plan import BY_ID, require_by_id
from ..disk.state_disk import run as change_disk
from ..errors import DiskError
from ..keyservice.initial_disk import FounderDisk
from ..keyservice.key_bundle import KeyPaths
from ..keyservice.ring import NamedDiskKey
from ..keyservice.ticket import SealedSecrets
from ..kubeadm.phases import INIT_PHASES
from ..policy.identity import Role
from ..reasons import Reason
from .journal import NodePhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ..core.command import CommandResult, Runner
    from ..core.host import Random
    from ..keyservice.key_bundle import KeyBundle
    from ..keyservice.master import DiskKey
    from ..kubeadm.operation import Machine
    from .journal import NodeJournal
    from .order import StateDisk


DIRECTORIES = {
    Role.WORKER: {Path("/var/lib/kubelet"): 0o700},
    Role.CONTROL_PLANE: {
        Path("/var/lib/kubelet"): 0o700,
        Path("/var/lib/etcd"): 0o700,
        Path("/etc/kubernetes"): 0o755,
        KeyPaths().rest: 0o700,
    },
}
"""The directories on the disk by role, with the mode for a directory that does not exist yet.

containerd's directory is not on the disk, because `prepare` fills it before there is a key.
"""

MINIMUM_BYTES = LEAST_BYTES
"""A smaller disk is refused unless the site sets another size."""

KEY_DIRECTORY = Path("/run/attested/disk-key")
VOLUME_FILE = Path("/var/lib/attested/volume")

_TPM_SECONDS = 60
_IN_HOST = ("nsenter", "--target", "1", "--mount", "--")
_VOLUME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings:
    """The site's settings of a machine's disk.

    ``device`` is its by-id path, ``erase`` the disk's name if it may be erased, ``minimum_bytes`` its least size.
    """

    device: str
    erase: str = ""
    minimum_bytes: int = MINIMUM_BYTES

    @classmethod
    def of(cls, device: str, *, erase: str = "", minimum_bytes: int = MINIMUM_BYTES) -> DiskSettings | None:
        """Return the settings, None without a ``device``; raises STATE_DISK_OPTION."""
        if not device:
            return None
        name = require_by_id(device).removeprefix(BY_ID)
        if erase and erase != name:
            raise DiskError(f"expected {name!r} as the disk to erase, got {erase!r}", reason=Reason.STATE_DISK_OPTION)
        return cls(device=device, erase=erase, minimum_bytes=minimum_bytes)


class HostMounts:
    """Runs programs in the mount namespace of process 1: mounts of a confined unit end with the unit."""

    def __init__(self, runner: Runner) -> None:
        """Run programs with ``runner``."""
        self._runner = runner

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run ``argv`` in that namespace; raises as ``runner``."""
        words = (*_IN_HOST, *argv)
        return self._runner.run(words, stdin=stdin, timeout_seconds=timeout_seconds, env=env, check=check)


class VolumeFile:
    """The id of the last used volume of the state disk, 64 hexadecimal digits.

    The file is on the system disk.
    """

    def __init__(self, path: Path = VOLUME_FILE) -> None:
        """Store the path."""
        self._path = path

    def load(self) -> str | None:
        """Return the volume, None if none was ever in use; raises STATE_DISK_OPTION."""
        if not self._path.exists():
            return None
        text = read_bytes(self._path, limit=256).decode("ascii", "replace").strip()
        if not _VOLUME.fullmatch(text):
            raise DiskError(
                f"expected a volume in 64 hexadecimal digits in {self._path}, found something else",
                reason=Reason.STATE_DISK_OPTION,
            )
        return text

    def save(self, volume: str) -> None:
        """Write ``volume``."""
        make_directory(self._path.parent, mode=0o755)
        write_atomic(self._path, f"{volume}\n".encode("ascii"), mode=0o644)


def _in_memory(directory: Path) -> None:
    require_tmpfs(directory)
    require_no_swap()


@contextmanager
def held_key(
    key: DiskKey, *, directory: Path = KEY_DIRECTORY, require_memory: Callable[[Path], None] = _in_memory
) -> Iterator[Path]:
    """Yield a root-only file on tmpfs with the key as long as the block lasts.

    Raises NOT_TMPFS, SWAP_ACTIVE.
    """
    make_directory(directory, mode=0o700)
    directory.chmod(0o700)
    require_memory(directory)
    path = directory / "key"
    try:
        write_atomic(path, key.reveal())
        yield path
    finally:
        remove(path)


class Mounts(Protocol):
    """The present mounts (`disk.gateway.LinuxDevice`)."""

    def mounted(self) -> bool:
        """Return whether the volume is mounted at its mount point."""

    def bound(self, target: Path) -> bool:
        """Return whether a directory of the volume is bind-mounted at ``target``."""


class MachineDisk:
    """The disk that a site names for this machine."""

    def __init__(
        self,
        settings: DiskSettings,
        *,
        tcti: str,
        role: Role = Role.WORKER,
        paths: StatePaths | None = None,
        volumes: VolumeFile | None = None,
        runner: Runner | None = None,
        mounts: Mounts | None = None,
        hold: Callable[[DiskKey], AbstractContextManager[Path]] = held_key,
    ) -> None:
        """Count unlocks in the TPM of ``tcti``; ``hold`` writes a key to a file that the other process reads.

        ``role`` determines the directories on the disk.
        """
        here = SystemRunner()
        self._settings = settings
        self._tcti = tcti
        self._paths = paths or StatePaths(directories=tuple(DIRECTORIES[role]))
        self._modes = DIRECTORIES[role]
        self._volumes = volumes or VolumeFile()
        self._runner = runner or HostMounts(here)
        self._mounts = mounts or LinuxDevice(settings.device, paths=self._paths, runner=here, follower=here)
        self._hold = hold

    def is_open(self) -> bool:
        """Return whether the volume was unlocked in this boot, is mounted at its directories, and is recorded."""
        counted = self._paths.counted.exists() and self._volumes.load() is not None
        return counted and self._mounts.mounted() and all(map(self._mounts.bound, self._paths.directories))

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Open the disk with ``key``.

        Raises STATE_DISK_TOO_LATE, and as `state_disk` and `SealedSecrets.opened`. A sealed key is passed to the other
        process unopened, so this process never has it. A named key belongs to a version of the master secret, and the
        disk's record stores the name.
        """
        if isinstance(key, SealedSecrets):
            self._open(disk_id=disk_id, member=member, sealed=key)
            return
        secret, name = (key.key, key.name) if isinstance(key, NamedDiskKey) else (key, "")
        with self._hold(secret) as path:
            self._open(disk_id=disk_id, member=member, key_file=path, key_name=name)

    def open_from(self, key_file: Path, *, disk_id: str, member: bool) -> None:
        """Open the disk with the key in a file on tmpfs; raises as `open`."""
        self._open(disk_id=disk_id, member=member, key_file=key_file)

    def destroyed(self, *, disk_id: str, check_mode: bool) -> tuple[str, ...]:
        """Close the disk and overwrite its keys (not in ``check_mode``).

        Return the steps, none for an empty disk. Raises STATE_DISK_MISSING, STATE_DISK_BUSY, and STATE_DISK_FOREIGN or
        STATE_DISK_OCCUPIED if the disk's content is not ours.
        """
        wanted = {**self._wanted(disk_id), "state": "destroyed", "volume": "", "erase": "", "key_file": ""}
        steps: list[str] = change_disk(wanted, check_mode=check_mode, runner=self._runner).values["steps"]
        return tuple(steps)

    def _open(
        self,
        *,
        disk_id: str,
        member: bool,
        key_file: Path | None = None,
        key_name: str = "",
        sealed: SealedSecrets | None = None,
    ) -> None:
        """Open the disk and record its volume.

        A node's disk is never formatted again: a ``member`` must have a recorded volume, and that volume must exist.
        """
        volume = self._volumes.load()
        if member and volume is None:
            raise DiskError(
                f"expected a volume that this node has used on {self._settings.device}, it has never used one",
                reason=Reason.STATE_DISK_TOO_LATE,
            )
        erase = "" if volume else self._settings.erase
        for target in self._paths.directories:
            if not target.exists():
                make_directory(target)
                target.chmod(self._modes.get(target, 0o700))
        key = {"key_file": str(key_file or ""), "key_name": key_name}
        wanted = {**self._wanted(disk_id), **key, "volume": volume or "", "erase": erase}
        done = change_disk(wanted, check_mode=False, runner=self._runner, sealed=sealed)
        self._volumes.save(done.values["volume"])

    def _wanted(self, disk_id: str) -> dict[str, Any]:
        paths = self._paths
        return {
            "device": self._settings.device,
            "uuid": disk_id,
            "state": "opened",
            "minimum_bytes": self._settings.minimum_bytes,
            "mount_point": str(paths.mount_point),
            "directories": [str(path) for path in paths.directories],
            "memory": str(paths.memory),
            "journal": str(paths.journal),
            "tcti": self._tcti,
            "tpm_timeout_seconds": _TPM_SECONDS,
        }


# The state disk of the founder, the machine that init makes the first control plane (docs/adr/0048).
#
# No cluster exists that could assign a disk id, so the machine draws one before it formats the disk. After a reset it
# asks for the key of that id like any node, so the id is written to its journal once the init is over.

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
