# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps are left, for every way in which a node can be found."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import Found, StepName, plan_steps

T, S, L, W, K, R, C = StepName
DAYS = 24 * 3600.0
FRESH = {
    "lock": LockState.UNLOCKED,
    "marker": False,
    "certificate_seconds": None,
    "kubeadm_left": True,
    "confirmed": False,
}
UP = {
    "lock": LockState.LOCKED,
    "marker": True,
    "certificate_seconds": 3 * DAYS,
    "kubeadm_left": False,
    "confirmed": True,
}


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        pytest.param(FRESH, (T, L, W, K, C), id="a fresh machine does everything"),
        pytest.param(UP, (), id="a node that is up does nothing"),
        pytest.param({**FRESH, "lock": LockState.LOCKED}, (T, L, W, K, C), id="killed between extension and marker"),
        pytest.param(
            {**FRESH, "lock": LockState.LOCKED, "marker": True}, (T, W, K, C), id="killed right after the lock"
        ),
        pytest.param({**UP, "kubeadm_left": True, "confirmed": False}, (K, C), id="killed during kubeadm"),
        pytest.param({**UP, "confirmed": False}, (C,), id="killed before the Node was seen"),
        pytest.param({**UP, "kubeadm_left": True}, (K, C), id="a stopped kubelet is started and seen"),
        pytest.param(
            {**UP, "lock": LockState.UNLOCKED, "marker": False, "kubeadm_left": True, "confirmed": False},
            (T, L, W, K, C),
            id="after a reboot: ticket, lock, then the kubelet",
        ),
        pytest.param({**UP, "certificate_seconds": DAYS - 1}, (T, W, R, C), id="a short certificate is fetched anew"),
        pytest.param({**UP, "certificate_seconds": DAYS}, (), id="a day left is enough"),
        pytest.param({**UP, "certificate_seconds": -5.0}, (T, W, R, C), id="a certificate that is over"),
        pytest.param({**UP, "certificate_seconds": None}, (T, W, R, C), id="a certificate that was lost"),
        pytest.param(
            {**FRESH, "takes_keys": True}, (T, S, L, W, K, C), id="a control plane keeps its keys before the lock"
        ),
        pytest.param({**UP, "takes_keys": True}, (), id="a control plane that is up does nothing"),
        pytest.param({**UP, "marker": False}, (L, C), id="a lost marker is written again"),
    ],
)
def test_steps(found, steps):
    assert plan_steps(Found(**found)) == steps
