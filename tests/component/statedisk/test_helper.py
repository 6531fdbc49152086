# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that holds keys, for real: started as the module starts it, its guards read from the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import run
from ansible_collections.attested.kubernetes.tests.support.house import SOURCES
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

GUARDED = """
import ctypes, resource
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.process import harden
harden()
status = open("/proc/self/status").read()
locked = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmLck"))
print(locked > 0, resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.fixture(autouse=True)
def _no_swap() -> None:
    if len(Path("/proc/swaps").read_text(encoding="utf-8").splitlines()) > 1:
        pytest.skip("swap is on here, and the process that holds keys refuses to run")
    if os.geteuid():
        pytest.skip("locking all memory needs root")


def test_its_memory_is_locked_and_nothing_can_be_dumped() -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", GUARDED], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True (0, 0) 0"


def test_it_answers_the_module(tmp_path: Path) -> None:
    params = {
        "device": "/dev/disk/by-id/there-is-no-such-disk",
        "uuid": "71111111-2222-4333-8444-555555555555",
        "state": "formatted",
        "key_file": None,
        "volume": None,
        "minimum_bytes": 1,
        "erase": None,
        "mount_point": str(tmp_path / "point"),
        "directories": [],
        "memory": "/dev/shm/attested-no-disk",  # tmpfs, and nothing is written
        "journal": str(tmp_path / "journal"),
        "tcti": "device:/dev/tpmrm0",
        "tpm_timeout_seconds": 1,
    }
    assert code_of(lambda: run(params, True)) == "STATE_DISK_MISSING"
    Path(params["memory"]).rmdir()
