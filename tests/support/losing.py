# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lose a control plane of a lab; a reboot restores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

UNITS = ("kubelet", "containerd", "attested-join-service", "attested-key-service", "attested-verification-service")
_KILL = "for p in $(pgrep -f '^(kube-|etcd )'); do kill -9 $p; done"


def lose(road: Road, machine: str, *more_units: str) -> None:
    """Make a control plane unreachable, like one that is switched off."""
    road.inside(machine, "systemctl", "stop", *UNITS, *more_units, check=False)
    road.inside(machine, "sh", "-c", _KILL, check=False)
