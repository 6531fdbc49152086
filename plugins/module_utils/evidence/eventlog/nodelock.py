# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node lock's register, read from its logs: unlocked, locked to a cluster, or neither.

The unlocked value is not zero, since systemd measures the machine-id into the register, and no base value is stored.
The value must follow from systemd's log and ours, interleaved in some order. Every event must state the hashed text, so
that a lock cannot pass as another event; a lock is TPM2_PCR_Event of the cluster id. Any other value is *foreign*.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ...errors import Refusal
from ...policy.profile import FIRST_RESETTABLE_REGISTER
from ...reasons import Reason
from ...tpm.constants import ALG_SHA256
from .replay import extend, initial_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .tcg import FirmwareLog, UserspaceRecord

DEFAULT_REGISTER = 15
"""The register of Constellation's lock too."""

LOCK_KIND = "nodelock"
"""The event type of the lock's record; its text is the cluster id in hex."""

SOURCE_KIND = "source"
"""The event type of the record that states the site's commit of this boot; it comes before the lock."""

_MAX_OWN_RECORDS = 2
_MAX_OTHER_RECORDS = 16


class LockState(Enum):
    """The three states; only a reset of the machine leads from LOCKED back to UNLOCKED."""

    FOREIGN = "foreign"
    LOCKED = "locked"
    UNLOCKED = "unlocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReading:
    """The state of the register: ``cluster_id`` (32 bytes) only when LOCKED, ``why`` only when FOREIGN.

    ``source`` is what was measured about the site before the lock, empty if nothing was. ``own`` counts the records of
    our log that were extended; a later record was written, but the machine stopped before its extension.
    """

    state: LockState
    cluster_id: bytes = b""
    why: str = ""
    source: str = ""
    own: int = field(default=0, compare=False)


def require_lock_register(register: int) -> None:
    """Refuse a register that software can reset: NODELOCK_REGISTER_RESETTABLE."""
    if not 0 <= register < FIRST_RESETTABLE_REGISTER:
        raise Refusal(
            f"expected a register from 0 to {FIRST_RESETTABLE_REGISTER - 1} for the node lock, got {register}",
            reason=Reason.NODELOCK_REGISTER_RESETTABLE,
        )


def read_lock(
    value: bytes,
    *,
    register: int,
    firmware: FirmwareLog,
    userspace: Sequence[UserspaceRecord],
    nodelock: Sequence[UserspaceRecord],
) -> LockReading:
    """Return the reading of ``value``, the quoted content of ``register`` in the SHA-256 bank.

    Raises nothing: a value that the logs do not explain gives FOREIGN.
    """
    others = [record for record in userspace if record.pcr == register]
    own = [record for record in nodelock if record.pcr == register]
    if any(event.pcr == register for event in firmware.events):
        return _foreign("the firmware extended it")
    why = _unexplained(others, own)
    if why:
        return _foreign(why)
    while value not in _values(register, _digests(others), _digests(own)):
        if not own:
            return _foreign(f"the logs do not lead to {value.hex()}")
        own = own[:-1]  # a record is written before its extension, so the machine may have stopped between the two
    return _explained(others, own)


def value_before_lock(
    value: bytes, *, register: int, userspace: Sequence[UserspaceRecord], nodelock: Sequence[UserspaceRecord]
) -> bytes | None:
    """Return the register's value before its lock; None if it is not locked, or if the logs do not explain ``value``.

    Data for the next boot is sealed to this value, which the register has again before the next lock.
    """
    others = [record for record in userspace if record.pcr == register]
    own = [record for record in nodelock if record.pcr == register]
    if _unexplained(others, own):
        return None
    for order in _orders(others, own):
        before = list(itertools.takewhile(lambda record: record.kind != LOCK_KIND, order))
        if len(before) < len(order) and _replayed(register, order) == value:
            return _replayed(register, before)
    return None


def _orders(others: list[UserspaceRecord], own: list[UserspaceRecord]) -> Iterator[list[UserspaceRecord]]:
    total = len(others) + len(own)
    for positions in reversed(list(itertools.combinations(range(total), len(own)))):
        order = list(others)
        for index, position in enumerate(positions):
            order.insert(position, own[index])
        yield order


def _replayed(register: int, records: list[UserspaceRecord]) -> bytes:
    value = initial_value(register)
    for digest in _digests(records):
        value = extend(value, digest)
    return value


def _explained(others: list[UserspaceRecord], own: list[UserspaceRecord]) -> LockReading:
    locks = [record for record in (*others, *own) if record.kind == LOCK_KIND]
    # Only our log has this record: systemd measures no such event, and later code can only append.
    source = own[0].text if own and own[0].kind == SOURCE_KIND else ""
    if not locks:
        return LockReading(state=LockState.UNLOCKED, source=source, own=len(own))
    cluster_id = bytes.fromhex(locks[0].text)
    return LockReading(state=LockState.LOCKED, cluster_id=cluster_id, source=source, own=len(own))


def _unexplained(others: list[UserspaceRecord], own: list[UserspaceRecord]) -> str:
    """Return why the records do not explain a register, empty if they can."""
    if len(own) > _MAX_OWN_RECORDS or len(others) > _MAX_OTHER_RECORDS:
        return f"{len(others)} and {len(own)} records, more than can be"
    silent = [record.kind for record in (*others, *own) if _preimage(record) is None]
    if silent:
        return f"records that do not say what was hashed: {', '.join(silent)}"
    if sum(record.kind == LOCK_KIND for record in (*others, *own)) > 1:
        return "it was locked twice"
    return ""


def _foreign(why: str) -> LockReading:
    return LockReading(state=LockState.FOREIGN, why=why)


def _preimage(record: UserspaceRecord) -> bytes | None:
    """Return the hashed bytes of a record, or None if its digest is not the hash of its text."""
    try:
        stated = bytes.fromhex(record.text) if record.kind == LOCK_KIND else record.text.encode()
    except ValueError:
        return None
    return stated if hashlib.sha256(stated).digest() == record.digests.get(ALG_SHA256) else None


def _digests(records: list[UserspaceRecord]) -> list[bytes]:
    return [record.digests[ALG_SHA256] for record in records]


def _values(register: int, others: list[bytes], own: list[bytes]) -> Iterator[bytes]:
    """Yield the value of every interleaving of the two logs, beginning with the usual one: our records last."""
    total = len(others) + len(own)
    for positions in reversed(list(itertools.combinations(range(total), len(own)))):
        order, value = list(others), initial_value(register)
        for index, position in enumerate(positions):
            order.insert(position, own[index])
        for digest in order:
            value = extend(value, digest)
        yield value
