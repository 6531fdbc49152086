# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps one node still has before it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..attestation.eventlog import LockState

RENEW_BELOW_SECONDS = 24 * 3600
"""A kubelet certificate with less left is fetched anew."""


class StepName(Enum):
    """The steps of a node in their order; the value is what a person reads."""

    TICKET = "Fetch the ticket"
    KEYS = "Keep the cluster's keys"
    LOCK = "Lock the machine to its cluster"
    WRITE = "Write the kubelet's credential"
    KUBEADM = "Join with kubeadm"
    RESTART = "Let the kubelet read its new credential"
    CONFIRM = "See the Node appear"


class DiskStep(Enum):
    """The step that only a machine with a state disk has; kept apart, so that every other machine's steps are as above.

    It comes after the ticket, which brings the key, and before keys and lock (docs/adr/0040, 0048).
    """

    DISK = "Open the state disk"


NodeStep: TypeAlias = StepName | DiskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The machine as found.

    ``certificate_seconds`` is what is left of the kubelet's certificate (None: there is none), ``kubeadm_left``
    whether kubeadm or the start of the kubelet is to do, ``confirmed`` whether the Node of this boot was seen.
    ``takes_keys``: it is (to be) a control plane, whose ticket brings what its key service holds. ``disk_closed``: it
    has a state disk, which is not open.
    """

    lock: LockState
    marker: bool
    certificate_seconds: float | None
    kubeadm_left: bool
    confirmed: bool
    takes_keys: bool = False
    disk_closed: bool = False


def plan_steps(found: Found) -> tuple[NodeStep, ...]:
    """Return the steps to do, none for a node that is up.

    A ticket is needed on a machine that is not locked (a fresh or a rebooted one), whose certificate is missing or
    short, or whose state disk is closed. After the lock everything is repaired forward: what is in place is kept, what
    is missing is done. Keys come before the lock, because they are sealed to the register that it changes; the disk
    does, because the kubelet starts on the lock's marker, and nothing of it may be written beside the disk. Keys lie on
    the disk of a machine that has one, so it is open before them.
    """
    ticket = found.lock is LockState.UNLOCKED or found.disk_closed or _is_short(found.certificate_seconds)
    steps: dict[NodeStep, bool] = {
        StepName.TICKET: ticket,
        DiskStep.DISK: found.disk_closed,
        StepName.KEYS: ticket and found.takes_keys,
        StepName.LOCK: found.lock is LockState.UNLOCKED or not found.marker,
        StepName.WRITE: ticket,
        StepName.KUBEADM: found.kubeadm_left,
        StepName.RESTART: ticket and not found.kubeadm_left,
    }
    todo = tuple(name for name, needed in steps.items() if needed)
    return (*todo, StepName.CONFIRM) if todo or not found.confirmed else ()


def _is_short(seconds: float | None) -> bool:
    return seconds is None or seconds < RENEW_BELOW_SECONDS
