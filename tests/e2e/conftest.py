# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lab from its creation to its removal, shared by the tests of this directory in the order of its life."""

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
"""Developer option: NAME:LOOPBACK of a running lab, which is used and kept."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests in the order of a lab's life, with any other tests."""
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def host_before() -> dict[str, Any]:
    """The state of this host before the lab."""
    return host_state(_lab())


@pytest.fixture(scope="session")
def labs_before() -> set[str]:
    """The labs that were up before this lab: the host's state is only compared without other labs."""
    return other_labs(_lab())


@pytest.fixture(scope="session")
def road(host_before: dict[str, Any], labs_before: set[str]) -> Iterator[Road]:  # runs first
    """Prepared and enrolled machines without a cluster; or an existing lab with a cluster."""
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
        lab.remove()


def _lab() -> Lab:
    name, _colon, loopback = os.environ.get(USED_LAB, "attested-e2e:127.62.0").partition(":")
    return Lab(name=name, directory=Path.home() / ".local" / "state" / name, loopback=loopback)
