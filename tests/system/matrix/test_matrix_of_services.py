# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each service of the only control plane is killed just before each step of a worker's join: the next try succeeds.

The worker is held at the step until the service is dead (SIGKILL), and goes on while it comes back by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.attested_matrix import HOLD
from ansible_collections.attested.kubernetes.tests.support.boot_lab import CONTROL_PLANE, WORKER
from ansible_collections.attested.kubernetes.tests.support.boundaries import FIRST_JOIN
from ansible_collections.attested.kubernetes.tests.support.joining import assert_a_clean_node, bring_before
from ansible_collections.attested.kubernetes.tests.support.records import recorded
from ansible_collections.attested.kubernetes.tests.support.striking import PATIENCE_SECONDS, Order, let_go, suffer, tell
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road
    from ansible_collections.attested.kubernetes.tests.system.matrix.conftest import StruckLab

pytestmark = pytest.mark.slow

UNITS = ("attested-join-service", "attested-key-service")
PROGRAMS = ("etcd", "kube-apiserver")
KILL = {
    **{program: ("pkill", "--signal", "KILL", "--exact", program) for program in PROGRAMS},
    **{unit: ("systemctl", "kill", "--kill-whom=all", "--signal=KILL", unit) for unit in UNITS},
}


@pytest.fixture(scope="module")
def road(struck_lab: StruckLab) -> Iterator[Road]:
    """A control plane and a worker."""
    with struck_lab("attested-services", "127.64.0", workers=1, struck=(WORKER,)) as one:
        yield one


@pytest.mark.parametrize("service", KILL)
@pytest.mark.parametrize("point", FIRST_JOIN)
def test_a_join_goes_on_after_a_service_was_killed(road: Road, point: str, service: str) -> None:
    order = Order(point=point, fault=HOLD)
    with recorded(point, f"kill {service}"):
        forget_earlier_kills(road)
        bring_before(road, WORKER, point)
        tell(road, WORKER, order)
        road.lab.ssh(WORKER, "sudo systemctl reboot")
        suffer(road, WORKER, order)
        before = processes(road)
        road.inside(CONTROL_PLANE, *KILL[service])
        let_go(road, WORKER)
        assert_a_clean_node(road, WORKER)
        wait_for(lambda: serves(road), seconds=PATIENCE_SECONDS)
        after = processes(road)
        assert {name for name in before if before[name] != after[name]} >= {service}


def forget_earlier_kills(road: Road) -> None:
    """A kubelet waits the longer for a program the more often it ended: that is of this matrix, not of a case."""
    road.inside(CONTROL_PLANE, "systemctl", "restart", "kubelet")
    wait_for(lambda: serves(road), seconds=PATIENCE_SECONDS)


def serves(road: Road) -> bool:
    """Whether all four are there and the API server finds etcd well."""
    kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw=/readyz")
    return "" not in processes(road).values() and road.inside(CONTROL_PLANE, *kubectl, check=False) == "ok"


def processes(road: Road) -> dict[str, str]:
    """Return the process of each service, empty for one that is away."""
    found = {name: road.inside(CONTROL_PLANE, "pgrep", "--exact", name, check=False).strip() for name in PROGRAMS}
    shown = road.inside(CONTROL_PLANE, "systemctl", "show", "--property=MainPID", "--value", *UNITS).split()
    return found | {unit: "" if pid == "0" else pid for unit, pid in zip(UNITS, shown, strict=True)}
