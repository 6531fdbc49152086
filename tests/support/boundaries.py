# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The points for faults: steps of the code, by the names that `striking.py` uses."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import MEMBER_OPERATION
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import (
    INIT_PHASES,
    JOIN_PHASES,
    MEMBER_PHASES,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import (
    Found,
    NodeStep,
    StepName,
    plan_steps,
)

ROOT = Path(__file__).resolve().parents[2]


def _steps(*, takes_keys: bool) -> tuple[NodeStep, ...]:
    found = Found(
        lock=LockState.UNLOCKED,
        marker=False,
        certificate_seconds=None,
        kubeadm_left=True,
        confirmed=False,
        takes_keys=takes_keys,
    )
    return plan_steps(found)


_WORKER = _steps(takes_keys=False)
_OWN = [f"join:{one.name}" for one in _WORKER]
_PHASES = [f"join:{one.name}" for one in JOIN_PHASES]
_KUBEADM = _WORKER.index(StepName.KUBEADM) + 1
FIRST_JOIN = [*_OWN[:_KUBEADM], *_PHASES, *_OWN[_KUBEADM:]]
"""Points of a worker without membership, in their order, after any fault."""
REJOIN = [f"rejoin:{one.name}" for one in _WORKER]
"""Points of a member after a reboot: of kubeadm's phases, only the start of the kubelet remains."""
JOIN = [*_OWN, *_PHASES, *REJOIN]
INIT = ["init:KEYS", "init:TAKE"] + [f"init:{one.name}" for one in INIT_PHASES]
MEMBER = [f"join:{one.name}" for one in _steps(takes_keys=True)] + [
    f"{MEMBER_OPERATION}:{one.name}" for one in MEMBER_PHASES
]


def commit() -> str:
    """Return the present commit."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def drawn(among: list[str], *, count: int, seed: str) -> list[str]:
    """Return ``count`` of ``among`` in order, chosen by ``seed``."""
    chosen = sorted(among, key=lambda one: hashlib.sha256(f"{seed}{one}".encode()).digest())[:count]
    return [one for one in among if one in chosen]


def shuffled(among: list[str], *, seed: str) -> list[str]:
    """Return ``among`` shuffled by ``seed``."""
    return sorted(among, key=lambda one: hashlib.sha256(f"{seed}{one}".encode()).digest())
