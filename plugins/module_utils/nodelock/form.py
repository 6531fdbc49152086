# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module `node_lock` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..attestation.eventlog import LockReading, LockState
from ..errors import NodeLockError
from ..reasons import Reason
from ..result import Diff, Result
from ..tpm import open_tpm
from .lock import NodeLock, require_cluster_id, require_open_to
from .paths import NodeLockPaths

if TYPE_CHECKING:
    from collections.abc import Mapping


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Read the lock, and take it when the state ``locked`` is wanted; raises NODELOCK_… and TPM_…."""
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
