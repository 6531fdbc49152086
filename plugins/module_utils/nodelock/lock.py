# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking the lock: one TPM event under one file lock, with its record written before it; and what comes before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..attestation.eventlog import (
    DEFAULT_REGISTER,
    LockReading,
    LockState,
    parse_firmware_log,
    parse_records,
    read_lock,
    require_lock_register,
    value_before_lock,
)
from ..errors import NodeLockError
from ..reasons import Reason
from ..system import SystemClock, read_bytes, write_atomic
from .log import LOG_LIMIT, with_lock, with_source
from .paths import NodeLockPaths, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ..system import Clock

_CLUSTER_ID_BYTES = 32


class RegisterTpm(Protocol):
    """What the lock needs of a TPM: read a register, and hash an event into all its banks."""

    def pcr_read(self, indices: Iterable[int]) -> Mapping[int, bytes]:
        """Return SHA-256 values by register."""

    def pcr_event(self, index: int, data: bytes) -> Mapping[int, bytes]:
        """Extend ``index`` by the hash of ``data`` in every bank; return the digests by algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """Outcome: ``won`` (this very call extended the register), the reading after it, and whether the marker was new."""

    won: bool
    reading: LockReading
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

    There is no way back: only a reset of the machine (which resets the TPM) leads to UNLOCKED again. An acquisition
    is four steps, each of which may be the last one that happens: record → extend → read back → marker. The record
    goes into the log before the extension, so it alone proves nothing: the register decides. Killed before the
    extension, it still reads UNLOCKED and the next call starts over; killed after it, the record explains the
    register, so the next call finds LOCKED and only writes the marker again.
    """

    def __init__(
        self,
        tpm: RegisterTpm,
        *,
        paths: NodeLockPaths | None = None,
        register: int = DEFAULT_REGISTER,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """Keep the open TPM and the paths; raises NODELOCK_REGISTER_RESETTABLE for 16 and above."""
        require_lock_register(register)
        self._tpm = tpm
        self._paths = paths or NodeLockPaths()
        self._register = register
        self._clock = clock or SystemClock()
        self._hooks = hooks or Hooks()

    def read(self) -> LockReading:
        """Return the reading now, under the file lock."""
        with exclusive(self._paths, clock=self._clock):
            return self._read()

    def value_before_lock(self) -> bytes:
        """Return what the register of this locked machine held before its lock; raises NODELOCK_NOT_HELD."""
        with exclusive(self._paths, clock=self._clock):
            found = value_before_lock(
                self._tpm.pcr_read([self._register])[self._register],
                register=self._register,
                userspace=parse_records(_content(self._paths.userspace_log), "log of systemd"),
                nodelock=parse_records(_content(self._paths.log), "node lock log"),
            )
        if found is None:
            raise NodeLockError(
                "expected a machine that is locked, and whose logs say so, it is not", reason=Reason.NODELOCK_NOT_HELD
            )
        return found

    def acquire(self, cluster_id: bytes) -> Acquisition:
        """Lock this machine to ``cluster_id`` (32 bytes), or find it locked to it already.

        Exactly one caller between two resets gets ``won``. Raises NODELOCK_FOREIGN when the register holds what no
        log explains, NODELOCK_OTHER_CLUSTER when it is locked to another cluster.
        """
        require_cluster_id(cluster_id)
        with exclusive(self._paths, clock=self._clock):
            reading = self._read()
            require_open_to(reading, cluster_id)
            won = reading.state is LockState.UNLOCKED
            if won:
                reading = self._lock(cluster_id, happened=reading.own)
            self._hooks.before("marker")
            marked = write_atomic(self._paths.marker, cluster_id.hex().encode() + b"\n", mode=0o644)
            return Acquisition(won=won, reading=reading, marker_written=marked)

    def measure(self, text: str) -> bool:
        """Extend the register by ``text``, which says what this boot runs, and return whether that was new.

        Once a boot and before the lock, in the same steps. Raises SOURCE_MEASURED_OTHER, SOURCE_LOCKED_BEFORE,
        NODELOCK_FOREIGN.
        """
        with exclusive(self._paths, clock=self._clock):
            reading = self._read()
            if reading.state is LockState.FOREIGN:
                raise _foreign(reading)
            if reading.source == text:
                return False
            _require_unmeasured(reading)
            log = with_source(_content(self._paths.log), register=self._register, text=text, happened=reading.own)
            if self._extend(log, text.encode()).source != text:
                raise _foreign(self._read())
            return True

    def _lock(self, cluster_id: bytes, *, happened: int) -> LockReading:
        log = _content(self._paths.log)
        log = with_lock(log, register=self._register, cluster_id=cluster_id, happened=happened)
        reading = self._extend(log, cluster_id)
        if reading.state is not LockState.LOCKED:
            raise _foreign(reading)
        return reading

    def _extend(self, log: bytes, data: bytes) -> LockReading:
        self._hooks.before("record")
        write_atomic(self._paths.log, log)
        self._hooks.before("extend")
        self._tpm.pcr_event(self._register, data)
        self._hooks.before("read back")
        return self._read()

    def _read(self) -> LockReading:
        value = self._tpm.pcr_read([self._register])[self._register]
        return read_lock(
            value,
            register=self._register,
            firmware=parse_firmware_log(_content(self._paths.firmware_log)),
            userspace=parse_records(_content(self._paths.userspace_log), "log of systemd"),
            nodelock=parse_records(_content(self._paths.log), "node lock log"),
        )


def require_cluster_id(cluster_id: bytes) -> None:
    """Raise NODELOCK_CLUSTER_ID_MALFORMED unless it has the length of one."""
    if len(cluster_id) != _CLUSTER_ID_BYTES:
        raise NodeLockError(
            f"expected a cluster id of {_CLUSTER_ID_BYTES} bytes, got {len(cluster_id)}",
            reason=Reason.NODELOCK_CLUSTER_ID_MALFORMED,
        )


def require_open_to(reading: LockReading, cluster_id: bytes) -> None:
    """Raise unless the machine is unlocked or locked to this very cluster."""
    if reading.state is LockState.FOREIGN:
        raise _foreign(reading)
    if reading.state is LockState.LOCKED and reading.cluster_id != cluster_id:
        raise NodeLockError(
            f"expected a machine that is unlocked or locked to {cluster_id.hex()[:16]}…, "
            f"it is locked to {reading.cluster_id.hex()[:16]}…",
            reason=Reason.NODELOCK_OTHER_CLUSTER,
        )


def _require_unmeasured(reading: LockReading) -> None:
    if reading.source:
        raise NodeLockError(
            f"expected a boot that runs one commit, it has measured {reading.source:.200}",
            reason=Reason.SOURCE_MEASURED_OTHER,
        )
    if reading.state is not LockState.UNLOCKED:
        raise NodeLockError(
            "expected a machine that is not locked before its site is measured, it is locked",
            reason=Reason.SOURCE_LOCKED_BEFORE,
        )


def _content(path: Path) -> bytes:
    return read_bytes(path, limit=LOG_LIMIT) if path.exists() else b""


def _foreign(reading: LockReading) -> NodeLockError:
    return NodeLockError(
        f"expected a register that this machine's logs explain, {reading.why or 'the event did not arrive'}",
        reason=Reason.NODELOCK_FOREIGN,
    )
