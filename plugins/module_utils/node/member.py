# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores the key service's part of a further control plane's ticket: the cluster's keys and the first policy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import Refusal
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER
from ..evidence.node_lock import NodeLock
from ..keyservice.key_bundle import KeyBundle
from ..keyservice.record import PolicyRecord, RecordFiles, RecordKey, TpmCounter
from ..keyservice.wrap import KeyStore, RestSealer
from ..policy.signature import verify_policy
from ..reasons import Reason
from ..tpm.client import open_tpm
from .cluster_keys import keep_keys, require_own_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ..evidence.node_lock import NodeLockPaths
    from ..keyservice.record import Counter
    from ..tpm.client import Tpm
    from .config import NodeConfig
    from .order import ControlPlaneTicket


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
