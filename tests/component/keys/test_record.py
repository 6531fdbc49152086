# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the policy with a real TPM, killed for real between its steps; the next start finishes what began."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.record import (
    PolicyRecord,
    RecordFiles,
    RecordKey,
    TpmCounter,
)
from ansible_collections.attested.kubernetes.tests.support.policy_site import PolicySite

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

SITE = PolicySite(b"c" * 32)
POLICIES = [SITE.plan([], generation=number) for number in range(4)]


def record_of(swtpm: Swtpm, root: Path) -> PolicyRecord:
    key = RecordKey(key=SecretBytes(b"r" * 32), cluster_id=b"c" * 32, node_name="cp-1")
    counter = TpmCounter(swtpm.tcti, lock_directory=root / "locks")
    return PolicyRecord(RecordFiles(root / "disk"), counter, key)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def change_and_die(swtpm: Swtpm, root: Path, step: str) -> None:
    """Follow to the next generation in a process of its own that is killed at ``step``."""
    child = os.fork()
    if child == 0:
        gc.disable()  # it would wait for threads of gRPC, which a fork does not have
        record = record_of(swtpm, root)
        record.load()
        files, counter = record._files, record._counter
        if step == "while staging":
            files.stage = lambda data: (files.staged.write_bytes(data[:40]), die())  # type: ignore[method-assign]
        elif step == "before the increment":
            counter.increment = die  # type: ignore[method-assign]
        elif step == "before publishing":
            files.publish = die  # type: ignore[method-assign]
        record.follow(POLICIES[2])
        die()
    _unused, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize(
    ("step", "generation"),
    [
        pytest.param("while staging", 1, id="while staging"),
        pytest.param("before the increment", 2, id="before the increment"),
        pytest.param("before publishing", 2, id="before publishing"),
        pytest.param("afterwards", 2, id="afterwards"),
    ],
)
def test_killed_between_its_steps(swtpm: Swtpm, tmp_path: Path, step: str, generation: int) -> None:
    first = record_of(swtpm, tmp_path)
    first.load()
    first.adopt(POLICIES[1])
    change_and_die(swtpm, tmp_path, step)
    again = record_of(swtpm, tmp_path)
    again.load()
    assert again.current().seen.generation == generation
    assert again.follow(POLICIES[3]).generation == 3
    third = record_of(swtpm, tmp_path)
    third.load()
    assert third.current().seen.generation == 3
