# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short-lived process that holds keys: runs one job of a disk.

It reads the job on standard input and writes the outcome to standard output. Neither holds a plain secret. A job names
key files on tmpfs, or holds the sealed secrets of a ticket; only this process reads or opens them. The process ends
with the job, and passes keys to its programs on standard input.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..keyservice.ticket import SealedSecrets
from ..tpm.client import open_tpm
from ..tpm.constants import NV_DISK_COUNTER
from ..tpm.storage import NvCounter
from .apply import StateDisk
from .gateway import LinuxDevice
from .paths import StatePaths
from .plan import Target, Wanted
from .process import read_key, serve_key_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..keyservice.master import DiskKey
    from .generation import Counter


_GONE = (Target.CLOSED, Target.DESTROYED)
"""After these targets there is no header to return."""


class TpmCounter:
    """The counter of this machine's TPM.

    Each call opens the TPM and closes it, because other processes use it too.
    """

    def __init__(self, tcti: str, *, timeout_seconds: float) -> None:
        """Store the TCTI of the TPM and the timeout."""
        self._tcti = tcti
        self._timeout_seconds = timeout_seconds

    def define(self) -> int:
        """Return the value; make the counter if it does not exist."""
        with self._open() as counter:
            return counter.define()

    def read(self) -> int | None:
        """Return the value, or None if there is no counter."""
        with self._open() as counter:
            return counter.read()

    def increment(self) -> int:
        """Add one and return the new value."""
        with self._open() as counter:
            return counter.increment()

    @contextlib.contextmanager
    def _open(self) -> Iterator[NvCounter]:
        with open_tpm(self._tcti, timeout_seconds=self._timeout_seconds) as tpm:
            yield NvCounter(tpm, NV_DISK_COUNTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKeys:
    """The wanted key of a disk (or None), its name, and former keys that may still open the disk."""

    key: DiskKey | None
    name: str
    former: tuple[DiskKey, ...]


def perform(job: Mapping[str, Any], *, counter: Counter | None = None) -> dict[str, Any]:
    """Plan, and run the plan if the job says ``apply``; return steps and header values.

    Raises `AttestedError`.
    """
    paths, runner = _paths(job), SystemRunner()
    keys = keys_of(job, mounts=paths.mounts)
    wanted = _wanted(job, key_name=keys.name)
    disk = StateDisk(
        LinuxDevice(wanted.device, paths=paths, runner=runner, follower=runner),
        wanted,
        paths=paths,
        counter=counter or TpmCounter(job["tcti"], timeout_seconds=job["tpm_timeout_seconds"]),
        key=keys.key,
        former=keys.former,
    )
    try:
        todo = disk.plan()
        header = todo.header
        if todo and job["apply"]:
            disk.apply(todo)
            header = None if wanted.target in _GONE else disk.volume()
    finally:
        paths.header.unlink(missing_ok=True)
    return {
        "steps": [step.name.lower() for step in todo.steps],
        "volume": header.volume.hex() if header else "",
        "initialised": bool(header and header.initialised),
    }


def keys_of(job: Mapping[str, Any], *, mounts: Path) -> JobKeys:
    """Return the keys that a job holds or names; raises the errors of unsealing and reading.

    During a rotation of the master secret, a ticket holds the disk's key of both versions.
    """
    if "sealed" in job:
        current, *others = SealedSecrets.from_job(job["sealed"]).opened().disk_keys()
        return JobKeys(key=current.key, name=current.name, former=tuple(one.key for one in others))
    return JobKeys(
        key=read_key(Path(job["key_file"]), mounts=mounts) if job["key_file"] else None,
        name=job["key_name"],
        former=tuple(read_key(Path(name), mounts=mounts) for name in job["former_key_files"]),
    )


def main() -> int:
    """Run the job on standard input and return the exit code."""
    return serve_key_job(perform)


def _wanted(job: Mapping[str, Any], *, key_name: str) -> Wanted:
    return Wanted(
        device=job["device"],
        uuid=job["uuid"],
        target=Target(job["state"]),
        minimum_bytes=job["minimum_bytes"],
        erase=job["erase"],
        volume=bytes.fromhex(job["volume"]) if job["volume"] else None,
        key_name=key_name,
    )


def _paths(job: Mapping[str, Any]) -> StatePaths:
    return StatePaths(
        memory=Path(job["memory"]),
        journal=Path(job["journal"]),
        mount_point=Path(job["mount_point"]),
        directories=tuple(Path(name) for name in job["directories"]),
    )


if __name__ == "__main__":
    raise SystemExit(main())
