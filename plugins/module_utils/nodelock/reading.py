# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a register's value means: unlocked, locked to a cluster, or foreign. Pure.

The verifier gives the value of the very quote that it verified, the node the value that it reads; both replay the
same two logs, so nobody stores a base value (design 6.9).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from ..errors import NodeLockError
from ..reasons import Reason
from .log import LockRecord, find_record, parse_log

DEFAULT_INDEX = 15
_FIRST_RESETTABLE = 16
_START = bytes(32)


class State(Enum):
    """The three readings of the register."""

    UNLOCKED = "unlocked"
    LOCKED = "locked"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A reading: ``state``, and the cluster id (bytes) when it is LOCKED."""

    state: State
    cluster_id: bytes | None = None


def require_usable_index(index: int) -> int:
    """Return ``index`` if that register keeps its value until the machine's reset, else raise by name.

    TCG PC Client Platform TPM Profile 1.05, section 4.6: registers 16 and 23 can be reset by anybody, 17 to 22 at
    other localities; none of them can hold a one-way lock.
    """
    if 0 <= index < _FIRST_RESETTABLE:
        return index
    raise NodeLockError(
        f"expected a register from 0 to {_FIRST_RESETTABLE - 1} for the lock, got {index}",
        reason=Reason.NODELOCK_REGISTER_RESETTABLE,
    )


def lock_digest(cluster_id: bytes) -> bytes:
    """Return the SHA-256 digest by which TPM2_PCR_Event(cluster id) extends the register."""
    return hashlib.sha256(cluster_id).digest()


def read_value(value: bytes, *, userspace: bytes, nodelock: bytes, index: int = DEFAULT_INDEX) -> Reading:
    """Return what the SHA-256 ``value`` of register ``index`` means under the two logs.

    ``userspace`` is systemd's log, ``nodelock`` ours; both JSON-seq. Our record is written before the extension, so
    its presence alone proves nothing: the value decides. systemd may measure before and after us, so the record may
    stand anywhere between its events. Malformed logs raise NODELOCK_LOG_MALFORMED.
    """
    require_usable_index(index)
    others = [event.digest for event in parse_log(userspace) if event.index == index]
    if value == _replay(others):
        return Reading(state=State.UNLOCKED)
    record = find_record(nodelock)
    if record is not None and _explains(value, others, record, index):
        return Reading(state=State.LOCKED, cluster_id=record.cluster_id)
    return Reading(state=State.FOREIGN)


def _explains(value: bytes, others: list[bytes], record: LockRecord, index: int) -> bool:
    if record.index != index:
        return False
    ours = lock_digest(record.cluster_id)
    return any(
        value == _replay([*others[:position], ours, *others[position:]]) for position in range(len(others), -1, -1)
    )


def _replay(digests: list[bytes]) -> bytes:
    value = _START
    for digest in digests:
        value = hashlib.sha256(value + digest).digest()
    return value
