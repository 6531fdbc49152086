# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of the lab, after all other tests: this host is as it was before."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.e2e.conftest import USED_LAB
from ansible_collections.attested.kubernetes.tests.support.lab import host_state, other_labs
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

LABS_SECONDS = 3600


def test_lab_down_leaves_the_host_as_it_was(road: Road, host_before: dict[str, Any], labs_before: set[str]) -> None:
    """Settings, links, routes, mounts, containers and processes are the same as before."""
    if os.environ.get(USED_LAB):
        pytest.skip("the lab was there before this test and stays")
    wait_for(lambda: other_labs(road.lab) <= labs_before, seconds=LABS_SECONDS)  # those of parallel stages
    began = time.monotonic()
    done = road.lab.play("lab_down")
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"lab_down took {time.monotonic() - began:.1f} s")
    after = host_state(road.lab)
    if labs_before:
        print(f"settings and mounts are not compared: {', '.join(sorted(labs_before))} was up before")
    # labs share settings of the host, and the last lab restores them: if another lab was there before and stays, only
    # our own state is compared
    shared = {"settings", "mounts"} if labs_before | other_labs(road.lab) else set()
    assert {kind: after[kind] for kind in after if kind not in shared} == {
        kind: host_before[kind] for kind in host_before if kind not in shared
    }
