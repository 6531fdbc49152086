# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the node lock: one TPM event under a file lock, logged before it; and measure the site before the lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..core.files import read_bytes, write_atomic
from ..core.host import SystemClock
from ..errors import NodeLockError, SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from ..tpm.client import open_tpm
from .eventlog.nodelock import (
    DEFAULT_REGISTER,
    LOCK_KIND,
    SOURCE_KIND,
    LockReading,
    LockState,
    read_lock,
    require_lock_register,
    value_before_lock,
)
from .eventlog.tcg import parse_firmware_log, parse_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..core.host import Clock


# The files of the lock, and the file lock that serialises its users.

_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLockPaths:
    """Paths of files in memory (tmpfs), so that a reset of the machine clears them together with the TPM.

    ``firmware_log`` is the kernel's binary_bios_measurements, ``userspace_log`` systemd's.
    """

    directory: Path = Path("/run/attested")
    firmware_log: Path = Path("/sys/kernel/security/tpm0/binary_bios_measurements")
    userspace_log: Path = Path("/run/log/systemd/tpm2-measure.log")

    @property
    def lock_file(self) -> Path:
        """The file whose flock(2) serialises all processes on this machine."""
        return self.directory / "nodelock.lock"

    @property
    def log(self) -> Path:
        """The log of the collection's own events, written before each is extended; sent to the verifier."""
        return self.directory / "nodelock.log"

    @property
    def marker(self) -> Path:
        """The file that exists while the machine is locked; the kubelet unit has it as a condition."""
        return self.directory / "locked"


@contextmanager
def exclusive(paths: NodeLockPaths, *, clock: Clock) -> Iterator[None]:
    """Hold the machine-wide file lock; raises NODELOCK_BUSY after 30 s.

    Each caller opens the file itself, so threads exclude each other too. The kernel releases the lock of a killed
    process.
    """
    descriptor = _open(paths)
    try:
        _wait_for(descriptor, clock)
        yield
    finally:
        os.close(descriptor)


def _open(paths: NodeLockPaths) -> int:
    try:
        # Other users need the directory's x bit for the sockets below it; its files are for root only.
        paths.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        return os.open(paths.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SystemFault(
            f"cannot open {paths.lock_file}: {error.strerror}", reason=Reason.FILE_UNUSABLE, hint="Run as root."
        ) from error


def _wait_for(descriptor: int, clock: Clock) -> None:
    deadline = clock.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if clock.monotonic() > deadline:
                raise NodeLockError(
                    f"expected the lock file within {_WAIT_SECONDS:g} s, another process holds it",
                    reason=Reason.NODELOCK_BUSY,
                ) from error
            clock.sleep(_POLL_SECONDS)
        else:
            return


# The lock's record as bytes: a JSON text sequence (RFC 7464) in the form of systemd's measurement log.

LOG_LIMIT = 1 << 20
_CONTENT_TYPE = "attested"
_VERSION = 1
_SEPARATOR = b"\x1e"
_BANKS = ("sha256", "sha384", "sha512")


def with_lock(log: bytes, *, register: int, cluster_id: bytes, extended: int = 0) -> bytes:
    """Return ``log`` with the record of a lock to ``cluster_id`` after the ``extended`` records that were extended."""
    content = {"eventType": LOCK_KIND, "version": _VERSION, "clusterId": cluster_id.hex()}
    return _appended(log, _record(register, cluster_id, content), register=register, extended=extended)


def with_source(log: bytes, *, register: int, text: str, extended: int = 0) -> bytes:
    """Return ``log`` with the record of the site's ``text`` after the ``extended`` records that were extended."""
    content = {"eventType": SOURCE_KIND, "version": _VERSION, "string": text}
    return _appended(log, _record(register, text.encode(), content), register=register, extended=extended)


def _appended(log: bytes, record: bytes, *, register: int, extended: int) -> bytes:
    """Append ``record`` and drop the records of ``register`` that were never extended, as the caller has read."""
    parts = log.split(_SEPARATOR)[1:]
    ours = [part for part in parts if json.loads(part).get("pcr") == register]
    return b"".join(_SEPARATOR + part for part in (*(part for part in parts if part not in ours[extended:]), record))


def _record(register: int, hashed: bytes, content: dict[str, object]) -> bytes:
    body = {
        "pcr": register,
        "digests": [{"hashAlg": bank, "digest": hashlib.new(bank, hashed).hexdigest()} for bank in _BANKS],
        "content_type": _CONTENT_TYPE,
        "content": {**content, "timestamp": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000},
    }
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


_CLUSTER_ID_BYTES = 32


class RegisterTpm(Protocol):
    """The TPM commands that the lock needs: read a register, and extend an event into all banks of a register."""

    def pcr_read(self, indices: Iterable[int]) -> Mapping[int, bytes]:
        """Return SHA-256 values by register."""

    def pcr_event(self, index: int, data: bytes) -> Mapping[int, bytes]:
        """Extend ``index`` by the hash of ``data`` in every bank; return the digests by algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """The result of `NodeLock.acquire`; ``won``: this call extended the register; ``reading``: the state after it."""

    won: bool
    reading: LockReading
    marker_written: bool = False


def _nothing(_step: str) -> None:
    """Do nothing between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """A callback that gets the name of each step just before the step; tests stop the process there."""

    before: Callable[[str], None] = field(default=_nothing)


class NodeLock:
    """The one-way lock of one machine.

    States and transitions::

        UNLOCKED --acquire(cluster)--> LOCKED(cluster)        one TPM2_PCR_Event
        anything else measured into the register --> FOREIGN

    Only a reset of the machine, which resets the TPM, leads back to UNLOCKED. An acquisition has four steps, and the
    process may be killed after each: record → extend → read back → marker. The record is written before the extension,
    so the record alone proves nothing: the register decides. After a kill before the extension the state is still
    UNLOCKED, and the next call starts over. After a later kill the record explains the register, so the next call
    reads LOCKED and only writes the marker.
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
        """Store the open TPM and the paths; raises NODELOCK_REGISTER_RESETTABLE for registers from 16 up."""
        require_lock_register(register)
        self._tpm = tpm
        self._paths = paths or NodeLockPaths()
        self._register = register
        self._clock = clock or SystemClock()
        self._hooks = hooks or Hooks()

    def read(self) -> LockReading:
        """Return the current reading, under the file lock."""
        with exclusive(self._paths, clock=self._clock):
            return self._read()

    def value_before_lock(self) -> bytes:
        """Return the register's value before the lock of this machine; raises NODELOCK_NOT_HELD if it is not locked."""
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
        """Lock this machine to ``cluster_id`` (32 bytes) unless it is locked to this cluster already.

        Exactly one caller between two resets gets ``won``. Raises NODELOCK_FOREIGN if the logs do not explain the
        register, and NODELOCK_OTHER_CLUSTER if the machine is locked to another cluster.
        """
        require_cluster_id(cluster_id)
        with exclusive(self._paths, clock=self._clock):
            reading = self._read()
            require_open_to(reading, cluster_id)
            won = reading.state is LockState.UNLOCKED
            if won:
                reading = self._lock(cluster_id, extended=reading.own)
            self._hooks.before("marker")
            marked = write_atomic(self._paths.marker, cluster_id.hex().encode() + b"\n", mode=0o644)
            return Acquisition(won=won, reading=reading, marker_written=marked)

    def measure(self, text: str) -> bool:
        """Extend the register by ``text``, which names the site's commit of this boot; return whether that was new.

        It works once in each boot and before the lock, in the same steps. Raises SOURCE_TOO_LATE, NODELOCK_FOREIGN.
        """
        with exclusive(self._paths, clock=self._clock):
            reading = self._read()
            if reading.state is LockState.FOREIGN:
                raise _foreign(reading)
            if reading.source == text:
                return False
            _require_unmeasured(reading)
            log = with_source(_content(self._paths.log), register=self._register, text=text, extended=reading.own)
            if self._extend(log, text.encode()).source != text:
                raise _foreign(self._read())
            return True

    def _lock(self, cluster_id: bytes, *, extended: int) -> LockReading:
        log = _content(self._paths.log)
        log = with_lock(log, register=self._register, cluster_id=cluster_id, extended=extended)
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
    """Raise NODELOCK_CLUSTER_ID_MALFORMED unless ``cluster_id`` has 32 bytes."""
    if len(cluster_id) != _CLUSTER_ID_BYTES:
        raise NodeLockError(
            f"expected a cluster id of {_CLUSTER_ID_BYTES} bytes, got {len(cluster_id)}",
            reason=Reason.NODELOCK_CLUSTER_ID_MALFORMED,
        )


def require_open_to(reading: LockReading, cluster_id: bytes) -> None:
    """Raise NODELOCK_FOREIGN or NODELOCK_OTHER_CLUSTER unless the machine is unlocked or locked to this cluster."""
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
            reason=Reason.SOURCE_TOO_LATE,
        )
    if reading.state is not LockState.UNLOCKED:
        raise NodeLockError(
            "expected a machine that is not locked before its site is measured, it is locked",
            reason=Reason.SOURCE_TOO_LATE,
        )


def _content(path: Path) -> bytes:
    return read_bytes(path, limit=LOG_LIMIT) if path.exists() else b""


def _foreign(reading: LockReading) -> NodeLockError:
    return NodeLockError(
        f"expected a register that this machine's logs explain, {reading.why or 'the event did not arrive'}",
        reason=Reason.NODELOCK_FOREIGN,
    )


# The work of the module `node_lock`.


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Lock the machine to the cluster; check mode only reads the lock. Raises NODELOCK_… and TPM_…."""
    paths = NodeLockPaths(
        directory=Path(params["directory"]),
        firmware_log=Path(params["firmware_log"]),
        userspace_log=Path(params["userspace_log"]),
    )
    cluster_id = _cluster_id(params["cluster_id"])
    with open_tpm(params["tcti"], timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        lock = NodeLock(tpm, paths=paths, register=params["register"])
        before = lock.read()
        require_open_to(before, cluster_id)
        wanted = before.state is LockState.UNLOCKED or not paths.marker.exists()
        after = before
        if wanted and not check_mode:
            after = lock.acquire(cluster_id).reading
    planned = LockReading(state=LockState.LOCKED, cluster_id=cluster_id)
    return Result(
        changed=wanted,
        values=_values(after),
        diff=Diff(before=_values(before), after=_values(planned)),
    )


def _cluster_id(text: str) -> bytes:
    try:
        cluster_id = bytes.fromhex(text)
    except ValueError as error:
        raise NodeLockError(
            f"expected a cluster id in hexadecimal, got {text!r}", reason=Reason.NODELOCK_CLUSTER_ID_MALFORMED
        ) from error
    require_cluster_id(cluster_id)
    return cluster_id


def _values(reading: LockReading) -> dict[str, Any]:
    return {"lock": reading.state.value, "cluster_id": reading.cluster_id.hex()}
