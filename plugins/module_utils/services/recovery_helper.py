# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short-lived process that opens a sealed disk key, tries the key, and writes it to tmpfs.

It reads a job with the box and the keys of the box from standard input. Its output, argv and environment hold no
secret.
"""

from __future__ import annotations

import shutil
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import require_tmpfs, write_atomic
from ..disk.gateway import LinuxDevice
from ..disk.luks_check import STATE_DISK, verify_header
from ..disk.paths import StatePaths
from ..disk.process import serve_key_job
from ..errors import Refusal
from ..keyservice.derive import cluster_id
from ..reasons import Reason
from ..transport.sealed_box import OneTimeKey, open_sealed
from .recovery_messages import RecoverySecrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..disk.luks_check import DiskShape
    from ..keyservice.master import DiskKey

KEY_FILE = "key"
_SLOTS = frozenset({0, 1})  # the second slot exists while a key is being rotated


def perform(job: Mapping[str, Any], *, shape: DiskShape = STATE_DISK) -> dict[str, Any]:
    """Write the key of a job's box to `KEY_FILE` if it opens the disk; raises `AttestedError`.

    1. The box opens (SEAL_..., MESSAGE_...). 2. It is for this disk (RECOVERY_DISK_DIFFERS) and of this cluster
    (CLUSTER_ID_MISMATCH). 3. The header is that of a state disk with this id (LUKS_...). 4. The key opens one of its
    slots (RECOVERY_KEY_WRONG). Only then the key is written, on tmpfs, readable by root only.
    """
    secrets = _opened(job)  # 1
    _require_ours(secrets, job)  # 2
    memory = Path(job["memory"])
    memory.mkdir(mode=0o700, parents=True)
    require_tmpfs(memory, mounts=Path(job["mounts"]))
    key = _right_key(secrets, job, memory=memory, shape=shape)  # 3, 4
    write_atomic(memory / KEY_FILE, key.reveal(), mode=0o600)
    return {}


def remove_directory(memory: Path) -> None:
    """Remove the directory of a job with its content."""
    shutil.rmtree(memory, ignore_errors=True)


def main() -> int:
    """Do the job on standard input."""
    return serve_key_job(perform)


def _opened(job: Mapping[str, Any]) -> RecoverySecrets:
    data = open_sealed(
        _bytes(job, "box"),
        secret=_bytes(job, "secret"),
        binding=_bytes(job, "binding"),
        one_time_key=OneTimeKey.restore(_bytes(job, "one_time_key")),
    )
    return RecoverySecrets.from_bytes(data)


def _require_ours(secrets: RecoverySecrets, job: Mapping[str, Any]) -> None:
    if secrets.disk.uuid != job["uuid"]:
        raise Refusal(
            f"expected the key of the disk {job['uuid']}, got that of {secrets.disk.uuid}",
            reason=Reason.RECOVERY_DISK_DIFFERS,
        )
    ours = _bytes(job, "cluster_id")
    derived = cluster_id(secrets.measurement_secret, _bytes(job, "measurement_salt"))
    if derived != ours:
        raise Refusal(
            f"expected the secrets of cluster {ours.hex()}, got those of {derived.hex()}",
            reason=Reason.CLUSTER_ID_MISMATCH,
        )


def _right_key(secrets: RecoverySecrets, job: Mapping[str, Any], *, memory: Path, shape: DiskShape) -> DiskKey:
    runner = SystemRunner()
    paths = StatePaths(memory=memory, directories=())
    device = LinuxDevice(job["device"], paths=paths, runner=runner, follower=runner)
    header = device.copy_header()
    slots = _SLOTS & frozenset(header.metadata.keyslots) or frozenset({0})
    verify_header(header, shape, uuid=job["uuid"], slots=slots)
    for key in (secrets.disk_key, *secrets.other_disk_keys):
        if any(device.opens(slot, key) for slot in sorted(slots)):
            return key
    raise Refusal(
        f"expected the key of the disk {job['uuid']}, got one that opens none of its slots",
        reason=Reason.RECOVERY_KEY_WRONG,
    )


def _bytes(job: Mapping[str, Any], name: str) -> bytes:
    return b64decode(job[name], validate=True)


if __name__ == "__main__":
    raise SystemExit(main())
