# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses what a bootstrapper does when it starts, from the lock, the disk and the claim of the machine. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ..errors import NodeLockError
from ..evidence.eventlog.nodelock import LockState
from ..evidence.node_lock import require_open_to
from ..reasons import Reason
from .claim import Contender
from .disk_setup import is_founded
from .journal import NodePhase

if TYPE_CHECKING:
    from ..evidence.eventlog.nodelock import LockReading
    from ..kubeadm.operation import Machine
    from .claim import Claim
    from .journal import NodeJournal


class BootAction(Enum):
    """What the bootstrapper can do in this boot; the value is the text for a person."""

    RACE = "Wait for an init request and ask for a ticket, whichever comes first"
    INIT = "Continue the init request that has taken the lock"
    JOIN = "Continue the join that has taken the lock"
    KEYS = "Wait for the keys that this control plane lost at its reboot"
    REJOIN = "Ask for a ticket again, then lock and start the kubelet"
    KUBELET = "Make sure that the kubelet runs"


class Membership(Enum):
    """How far this machine has become a node, as the journals on its disk record it; kept over resets."""

    NONE = "none"
    JOINING = "joining"
    JOINED = "joined"
    INITIALISING = "initialising"
    INITIALISED = "initialised"


_UNLOCKED = {
    Membership.NONE: BootAction.RACE,
    Membership.JOINING: BootAction.REJOIN,
    Membership.JOINED: BootAction.REJOIN,
    Membership.INITIALISING: BootAction.KEYS,
    Membership.INITIALISED: BootAction.KEYS,
}
_LOCKED = {
    Membership.JOINING: BootAction.JOIN,
    Membership.JOINED: BootAction.KUBELET,
    Membership.INITIALISING: BootAction.INIT,
    Membership.INITIALISED: BootAction.KUBELET,
}
_CLAIMED = {Contender.INIT: BootAction.INIT, Contender.JOIN: BootAction.JOIN}


def choose_action(
    reading: LockReading, *, cluster_id: bytes, membership: Membership, claim: Claim | None, has_disk: bool = False
) -> BootAction:
    """Return the action for a machine in the given state.

    The lock register decides first, then the disk, then the claim. A member is never initialised or joined a second
    time. After a reset it asks for a ticket, and a founder waits for its keys. A founder with a state disk has its keys
    on the disk, so it rejoins like any other node. Raises NODELOCK_FOREIGN, NODELOCK_OTHER_CLUSTER, and
    NODELOCK_UNCLAIMED for a lock that neither disk nor claim explains.
    """
    require_open_to(reading, cluster_id)
    if reading.state is LockState.UNLOCKED:
        if has_disk and membership is Membership.INITIALISED:
            return BootAction.REJOIN
        return _UNLOCKED[membership]
    if membership is not Membership.NONE:
        return _LOCKED[membership]
    if claim is None:
        raise NodeLockError(
            "expected the disk or a claim to record what took the lock of this machine, found neither",
            reason=Reason.NODELOCK_UNCLAIMED,
        )
    return _CLAIMED[claim.contender]


def read_membership(machine: Machine, journal: NodeJournal) -> Membership:
    """Return the membership from the two journals of this machine; raises NODE_JOURNAL_MALFORMED."""
    progress = machine.journal.load()
    if progress is not None and progress.operation == "init":
        return Membership.INITIALISED if is_founded(machine) else Membership.INITIALISING
    phase = journal.load().phase
    if phase is NodePhase.JOINED:
        return Membership.JOINED
    return Membership.JOINING if phase in (NodePhase.LOCKED, NodePhase.JOINING) else Membership.NONE
