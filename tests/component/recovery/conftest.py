# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recoveries are tried on: a folder on tmpfs, a disk that the real cryptsetup made, machines with real TPMs."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import ClusterKeys
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import DISK, format_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle


@pytest.fixture(scope="session")
def keys() -> tuple[JoinCa, KeyBundle]:
    """The secrets of one cluster."""
    return make_keys()


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on tmpfs; the process that holds keys needs one."""
    if len(Path("/proc/swaps").read_text(encoding="utf-8").splitlines()) > 1:
        pytest.skip("swap is on here, and the process that holds keys refuses to run")
    if os.geteuid():
        pytest.skip("locking all memory needs root")
    with tempfile.TemporaryDirectory(prefix="attested-recovery-", dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory, keys: tuple[JoinCa, KeyBundle]) -> Path:
    """A state disk in use, made once: no test changes it, and one holds that none did."""
    if shutil.which("cryptsetup") is None:
        pytest.skip("no cryptsetup here (package cryptsetup-bin)")
    path = tmp_path_factory.mktemp("disk") / "disk.img"
    format_plain(path, ClusterKeys.of_bundle(keys[1]).of_node(DISK))
    return path
