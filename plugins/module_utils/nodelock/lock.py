# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking the lock: one TPM event under one file lock, with a record written before it."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import NodeLockError
from ..reasons import Reason
from ..system import read_bytes, write_atomic
from .log import LOG_LIMIT, LockRecord, render_record
from .reading import DEFAULT_INDEX, Reading, State, read_value, require_usable_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.01
_CLUSTER_ID_BYTES = 32


class RegisterTpm(Protocol):
    """What the lock needs of a TPM: read a register and hash an event into all its banks."""

    def pcr_read(self, indices: Iterable[int]) -> Mapping[int, bytes]:
        """Return SHA-256 values by register."""

    def pcr_event(self, index: int, data: bytes) -> Mapping[int, bytes]:
        """Extend ``index`` by the hash of ``data`` in every bank; return the digests by algorithm."""


class Logs(Protocol):
    """The two logs that explain the register, as bytes."""

    @property
    def userspace(self) -> bytes:
        """The log of systemd."""

    @property
    def nodelock(self) -> bytes:
        """The log of this collection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLockPaths:
    """Where the lock lives; all below directories in memory, so a reset of the machine clears them with the TPM."""

    directory: Path = Path("/run/attested")
    userspace_log: Path = Path("/run/log/systemd/tpm2-measure.log")
    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")

    @property
    def lock_file(self) -> Path:
        """The file whose flock(2) serialises everybody on this machine."""
        return self.directory / "nodelock.lock"

    @property
    def log(self) -> Path:
        """The write-ahead record."""
        return self.directory / "nodelock.log"

    @property
    def marker(self) -> Path:
        """Exists while the machine is locked; the kubelet unit's condition."""
        return self.directory / "locked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """Outcome: ``won`` (this very call extended the register), the reading after it, and the repaired marker."""

    won: bool
    reading: Reading
    marker_written: bool = False


def _nothing(_step: str) -> None:
    """Do nothing between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Called with the name of each step just before it (tests stop the process there)."""

    before: Callable[[str], None] = field(default=_nothing)


class NodeLock:
    """The one-way lock of one machine.

    States and the only ways between them::

        UNLOCKED --acquire(cluster)--> LOCKED(cluster)        one TPM2_PCR_Event
        anything else measured into the register --> FOREIGN

    There is no way back: only a reset of the machine (which resets the TPM) leads to UNLOCKED again. Steps of an
    acquisition, each of which may be the last one that happens: record (write-ahead) → extend → read back → marker.
    Killed before the extension, the value still reads UNLOCKED and the next call starts over; killed after it, the
    record explains the value, so the next call finds LOCKED and only writes the marker again.
    """

    def __init__(
        self,
        tpm: RegisterTpm,
        *,
        paths: NodeLockPaths | None = None,
        index: int = DEFAULT_INDEX,
        hooks: Hooks | None = None,
    ) -> None:
        """Keep the open TPM and the paths; raises NODELOCK_REGISTER_RESETTABLE for register 16 and above."""
        self._tpm = tpm
        self._paths = paths or NodeLockPaths()
        self._index = require_usable_index(index)
        self._hooks = hooks or Hooks()

    def read(self) -> Reading:
        """Return the reading now, under the file lock."""
        with _exclusive(self._paths):
            return self._read()

    def acquire(self, cluster_id: bytes) -> Acquisition:
        """Lock this machine to ``cluster_id`` (32 bytes), or find it locked to it already.

        Exactly one caller between two resets gets ``won``. Raises NODELOCK_FOREIGN when the register holds an event
        that no log explains, NODELOCK_OTHER_CLUSTER when it is locked to another cluster.
        """
        if len(cluster_id) != _CLUSTER_ID_BYTES:
            raise NodeLockError(
                f"expected a cluster id of {_CLUSTER_ID_BYTES} bytes, got {len(cluster_id)}",
                reason=Reason.NODELOCK_CLUSTER_ID_MALFORMED,
            )
        with _exclusive(self._paths):
            reading = self._require_open_to(cluster_id)
            won = reading.state is State.UNLOCKED
            if won:
                reading = self._extend(cluster_id)
            self._hooks.before("marker")
            marked = write_atomic(self._paths.marker, cluster_id.hex().encode() + b"\n", mode=0o644)
            return Acquisition(won=won, reading=reading, marker_written=marked)

    def _read(self) -> Reading:
        return _read_register(self._tpm, _files(self._paths), self._index)

    def _require_open_to(self, cluster_id: bytes) -> Reading:
        reading = self._read()
        if reading.state is State.FOREIGN:
            raise _foreign(self._index)
        if reading.cluster_id not in (None, cluster_id):
            raise NodeLockError(
                f"expected a machine that is unlocked or locked to {cluster_id.hex()[:16]}…, "
                f"it is locked to {(reading.cluster_id or b'').hex()[:16]}…",
                reason=Reason.NODELOCK_OTHER_CLUSTER,
            )
        return reading

    def _extend(self, cluster_id: bytes) -> Reading:
        self._hooks.before("record")
        record = LockRecord(
            cluster_id=cluster_id,
            index=self._index,
            boot_id=_boot_id(self._paths.boot_id),
            timestamp=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
        )
        write_atomic(self._paths.log, render_record(record))
        self._hooks.before("extend")
        self._tpm.pcr_event(self._index, cluster_id)
        self._hooks.before("read back")
        reading = self._read()
        if reading.state is not State.LOCKED:
            raise _foreign(self._index)
        return reading


def acquire(
    tpm: RegisterTpm, cluster_id: bytes, *, paths: NodeLockPaths | None = None, index: int = DEFAULT_INDEX
) -> Acquisition:
    """Take the lock once; see `NodeLock.acquire`."""
    return NodeLock(tpm, paths=paths, index=index).acquire(cluster_id)


def read_state(tpm: RegisterTpm, logs: Logs | NodeLockPaths, *, index: int = DEFAULT_INDEX) -> Reading:
    """Return the reading of register ``index`` under ``logs`` (bytes, or the paths of this machine)."""
    found = _files(logs) if isinstance(logs, NodeLockPaths) else logs
    return _read_register(tpm, found, require_usable_index(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFiles:
    userspace: bytes
    nodelock: bytes


def _files(paths: NodeLockPaths) -> _LogFiles:
    return _LogFiles(userspace=_content(paths.userspace_log), nodelock=_content(paths.log))


def _content(path: Path) -> bytes:
    return read_bytes(path, limit=LOG_LIMIT) if path.exists() else b""


def _read_register(tpm: RegisterTpm, logs: Logs, index: int) -> Reading:
    value = tpm.pcr_read([index])[index]
    return read_value(value, userspace=logs.userspace, nodelock=logs.nodelock, index=index)


def _foreign(index: int) -> NodeLockError:
    return NodeLockError(
        f"expected register {index} to hold what systemd and this collection logged, it holds something else",
        reason=Reason.NODELOCK_FOREIGN,
    )


def _boot_id(path: Path) -> str:
    return read_bytes(path, limit=64).decode("ascii", "replace").strip().replace("-", "")


@contextmanager
def _exclusive(paths: NodeLockPaths) -> Iterator[None]:
    """Hold the machine-wide file lock; each caller opens the file itself, so threads exclude each other too."""
    paths.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    descriptor = os.open(paths.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise NodeLockError(
                    f"expected the lock file within {_WAIT_SECONDS:g} s, another process holds it",
                    reason=Reason.NODELOCK_BUSY,
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            return
