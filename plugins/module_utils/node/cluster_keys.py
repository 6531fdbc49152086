# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane receives the cluster's keys: compare → store sealed by the TPM → lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..core.host import SystemClock
from ..errors import KeyServiceError
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER, LockState
from ..evidence.node_lock import NodeLock, NodeLockPaths, require_open_to
from ..keyservice.key_bundle import KeyBundle
from ..keyservice.wrap import KeyStore, TpmSealer
from ..reasons import Reason
from ..result import Result, Step
from ..tpm.client import open_tpm
from .answers import AnswerStore, decode
from .config import load_node_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.host import Clock
    from ..tpm.client import Tpm
    from .config import NodeConfig


Sealer_contra = TypeVar("Sealer_contra", contravariant=True)


class Keeper(Protocol[Sealer_contra]):
    """Stores the keys of a cluster, at rest and opened (`keyservice.wrap.KeyStore`)."""

    def write(self, bundle: KeyBundle, sealer: Sealer_contra, *, pcrs: Mapping[int, bytes]) -> bool:
        """Store ``bundle``, sealed to ``pcrs``; return whether anything changed."""

    def opened(self) -> KeyBundle | None:
        """Return the opened copy of this boot, or None."""


def take_keys(
    bundle: KeyBundle,
    *,
    config: NodeConfig,
    tpm: Tpm,
    store: Keeper[Sealer_contra],
    sealer: Sealer_contra,
    lock: NodeLock,
    judged: Mapping[int, bytes],
    clock: Clock | None = None,
) -> tuple[Step, ...]:
    """Store ``bundle`` on this machine and lock it to its cluster.

    Return the executed steps (none on a repetition).

    1. to 3. of `keep_keys`.
    4. The lock is taken.

    The caller must have verified the machine, and must discard the bundle.
    """
    time = clock or SystemClock()

    def keep() -> bool:
        return keep_keys(bundle, config=config, tpm=tpm, store=store, sealer=sealer, lock=lock, judged=judged)

    steps = _step("keys", "Keep the keys under the TPM", time, keep)
    steps += _step("lock", "Lock the machine to its cluster", time, lambda: _is_change(lock, config.cluster_id))  # 4
    return tuple(steps)


def keep_keys(
    bundle: KeyBundle,
    *,
    config: NodeConfig,
    tpm: Tpm,
    store: Keeper[Sealer_contra],
    sealer: Sealer_contra,
    lock: NodeLock,
    judged: Mapping[int, bytes],
) -> bool:
    """Store ``bundle`` on this machine, at init or when it joins as a control plane.

    Return whether anything changed.

    1. The bundle belongs to the cluster that this machine's configuration names. CLUSTER_ID_MISMATCH
    2. The machine is unlocked or locked to that cluster. NODELOCK_FOREIGN, NODELOCK_OTHER_CLUSTER
    3. The keys are sealed to the ``judged`` register values and the unlocked lock register.

    A machine that is already locked must hold the opened keys. Sealing needs the unlocked register, so otherwise
    STATE_CHANGED is raised, and the machine has to be rebooted first.
    """
    require_own_cluster(bundle, config)  # 1
    reading = lock.read()
    require_open_to(reading, config.cluster_id)  # 2
    if reading.state is not LockState.UNLOCKED:
        _require_held(store.opened(), bundle)
        return False
    pcrs = {**judged, DEFAULT_REGISTER: tpm.pcr_read([DEFAULT_REGISTER])[DEFAULT_REGISTER]}
    return store.write(bundle, sealer, pcrs=pcrs)  # 3


def require_own_cluster(bundle: KeyBundle, config: NodeConfig) -> None:
    """Raise CLUSTER_ID_MISMATCH unless the keys are those of the cluster that this machine's configuration names."""
    if bundle.cluster_id != config.cluster_id:
        raise KeyServiceError(
            f"expected the keys of cluster {config.cluster_id.hex()}, got those of {bundle.cluster_id.hex()}",
            reason=Reason.CLUSTER_ID_MISMATCH,
        )


def _require_held(opened: KeyBundle | None, bundle: KeyBundle) -> None:
    if opened != bundle:
        raise KeyServiceError(
            "expected an unlocked machine or one that holds these keys, it is locked and does not",
            reason=Reason.STATE_CHANGED,
            hint="Reboot the machine, then run the same playbook (init or node) again.",
        )


def _is_change(lock: NodeLock, cluster_id: bytes) -> bool:
    taken = lock.acquire(cluster_id)
    return taken.won or taken.marker_written


def _step(name: str, title: str, clock: Clock, action: Callable[[], bool]) -> list[Step]:
    begun = clock.monotonic()
    if not action():
        return []
    return [Step(name=name, title=title, seconds=clock.monotonic() - begun)]


# The work of the module ``cluster_keys``: options in, one call of the domain, result out.


def run_cluster_keys(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Open the sealed keys of the cluster, store them sealed by the TPM, then lock the machine."""
    config = load_node_config(params["node_config"])
    kept = AnswerStore().take(params["handle"])
    bundle = KeyBundle.from_bytes(kept.open(decode(params["sealed"], "sealed")))
    judged = {index: value for index, value in kept.pcrs.items() if index != DEFAULT_REGISTER}
    with open_tpm(config.tcti, timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        lock = NodeLock(tpm, paths=NodeLockPaths(userspace_log=config.logs.userspace))
        if check_mode:
            return Result(values={"cluster_id": bundle.cluster_id.hex(), "steps": []})
        steps = take_keys(
            bundle, config=config, tpm=tpm, store=KeyStore(), sealer=TpmSealer(tpm), lock=lock, judged=judged
        )
    shown = [{"name": step.name, "title": step.title, "seconds": round(step.seconds, 3)} for step in steps]
    return Result(changed=bool(steps), values={"cluster_id": bundle.cluster_id.hex(), "steps": shown})
