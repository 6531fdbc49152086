# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lab from nothing to its end, shared by the tests of this directory; they run in the order of its life."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab, host_state, obstacles, other_labs
from ansible_collections.attested.kubernetes.tests.support.road import Road

if TYPE_CHECKING:
    from collections.abc import Iterator

USED_LAB = "ATTESTED_E2E_LAB"
"""Of a developer: NAME:LOOPBACK of a lab that is up, to be used and left instead of a fresh one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the order of a lab's life, whatever else is collected."""
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def host_before() -> dict[str, Any]:
    """What this host was like before the lab."""
    return host_state(_lab())


@pytest.fixture(scope="session")
def labs_before() -> set[str]:
    """Which other labs were up before the lab: the host's state counts only where there were none."""
    return other_labs(_lab())


@pytest.fixture(scope="session")
def road(host_before: dict[str, Any], labs_before: set[str]) -> Iterator[Road]:  # looks first
    """Machines that were prepared and enrolled, and of which nobody has made anything; or a lab with a cluster."""
    if found := obstacles():
        pytest.skip(found)
    lab = _lab()
    with ProcessWatch() as watch:
        road = Road(lab=lab, watch=watch, began=time.time())
        if not os.environ.get(USED_LAB):
            road.play("lab_machines", where=Path.home())
            road.began = time.time()
            road.play("lab")
        else:
            road.began = (road.site / "cluster.yml").stat().st_mtime
        yield road
    if not os.environ.get(USED_LAB):
        lab.play("lab_down")


def _lab() -> Lab:
    name, _colon, loopback = os.environ.get(USED_LAB, "attested-e2e:127.62.0").partition(":")
    return Lab(name=name, directory=Path.home() / ".local" / "state" / name, loopback=loopback)
