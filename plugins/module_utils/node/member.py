# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores the key service's part of a further control plane's ticket: the cluster's keys and the first policy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..core.documents import load_json
from ..core.host import SystemClock
from ..errors import KeyServiceError, Refusal
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER, LockState
from ..evidence.node_lock import NodeLock, NodeLockPaths, require_open_to
from ..keyservice.key_bundle import KeyBundle
from ..keyservice.record import PolicyRecord, RecordFiles, RecordKey, TpmCounter
from ..keyservice.wrap import KeyStore, RestSealer, TpmSealer
from ..policy.signature import verify_policy
from ..reasons import Reason
from ..result import Result, Step
from ..tpm.client import open_tpm
from .answers import AnswerStore, decode
from .config import load_node_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ..core.host import Clock
    from ..keyservice.record import Counter
    from ..tpm.client import Tpm
    from .config import NodeConfig
    from .order import ControlPlaneTicket


# A control plane receives the cluster's keys: compare → store sealed by the TPM → lock.

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


class MemberKeys:
    """Stores the keys and the policy of a control plane's ticket; a repetition changes nothing."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        lock_paths: NodeLockPaths,
        store: KeyStore | None = None,
        open_machine: Callable[[], AbstractContextManager[Tpm]] | None = None,
        counter: Counter | None = None,
        on_disk: bool = False,
    ) -> None:
        """Write to ``store``, sealed by the TPM that ``open_machine`` opens.

        The TPM's ``counter`` protects the record. ``on_disk``: the store is on the state disk, which the caller opened.
        """
        self._config = config
        self._lock_paths = lock_paths
        self._store = store or KeyStore()
        self._open = open_machine or partial(open_tpm, config.tcti)
        self._counter = counter or TpmCounter(config.tcti)
        self._on_disk = on_disk

    def take(self, brought: ControlPlaneTicket) -> bool:
        """Store the keys, then begin the record of the policy; return whether anything changed.

        1. to 3. of `keep_keys`.
        4. The policy is signed by the site. TICKET_MALFORMED, MANIFEST_INVALID, POLICY_SIGNATURE
        5. The record begins with the policy, or is not newer. POLICY_ROLLED_BACK, TPM_…

        The policy is verified before anything is stored. The caller must take the lock afterwards.
        """
        bundle = KeyBundle.from_bytes(brought.bundle)
        policy = verify_policy(  # 4
            _document(brought.policy), public_key=bundle.policy_key, cluster_id=self._config.cluster_id
        )
        judged = {index: value for index, value in brought.judged.items() if index != DEFAULT_REGISTER}
        with self._open() as tpm:
            changed = keep_keys(
                bundle,
                config=self._config,
                tpm=tpm,
                store=self._store,
                sealer=RestSealer(tpm, on_disk=self._on_disk),
                lock=NodeLock(tpm, paths=self._lock_paths),
                judged=judged,
            )
        record = self._record(bundle)
        record.load()
        before = record.state()
        return record.adopt(policy) != before or changed  # 5

    def open(self) -> None:
        """Open the keys at rest, if there are any. The caller must take the lock afterwards.

        Raises STATE_CHANGED, KEYS_DAMAGED, and CLUSTER_ID_MISMATCH for keys of another cluster.
        """
        if not self._store.paths.rest_file.exists():
            return
        with self._open() as tpm:
            bundle = self._store.unlock(RestSealer(tpm))
        require_own_cluster(bundle, self._config)

    def _record(self, bundle: KeyBundle) -> PolicyRecord:
        first, *former = bundle.record_keys()
        key = RecordKey(key=first, cluster_id=bundle.cluster_id, node_name=self._config.name, former=tuple(former))
        return PolicyRecord(RecordFiles(self._store.paths.rest), self._counter, key)


def _document(policy: bytes) -> dict[str, Any]:
    try:
        document = load_json(policy)
    except ValueError as error:
        raise _malformed() from error
    if not isinstance(document, dict):
        raise _malformed()
    return document


def _malformed() -> Refusal:
    return Refusal("expected the policy as JSON in the ticket, got something else", reason=Reason.TICKET_MALFORMED)
