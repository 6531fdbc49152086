# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S36: whatever the umask, nobody else reads what we write."""

from __future__ import annotations

import ast
import os
import stat
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.tests.support import house
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

THREAT = Threat(
    id="S36",
    title="World-readable files",
    case="GHSA-fchm-5w2v-qfm8, Cure53 SPI-01-002",
    bed="api",
    stops=(("core/files.py", ""), ("services/ticket_store.py", ""), ("transport/unix_rpc.py", "")),
)

OTHERS = stat.S_IRWXO
PUBLIC = {"locked"}  # a marker without content, which kubelet's unit looks for


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> list[str]:
    found = [path for path in root.rglob("*") if not path.is_symlink() and path.lstat().st_mode & OTHERS]
    return [str(path.relative_to(root)) for path in found if path.name not in PUBLIC]


def test_the_search_finds_what_is_open(no_umask: None, tmp_path: Path) -> None:
    (tmp_path / "open").write_text("x")
    assert open_to_others(tmp_path) == ["open"]


def test_a_file_has_its_mode_from_the_first_byte(no_umask: None, tmp_path: Path) -> None:
    seen: list[int] = []
    real = os.fsync

    def looked(descriptor: int) -> None:
        seen.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())
        real(descriptor)

    os.fsync = looked
    try:
        write_atomic(tmp_path / "secret", b"x")
    finally:
        os.fsync = real
    assert seen == [0o600]
    assert open_to_others(tmp_path) == []


def test_a_mode_that_was_opened_is_closed_again(no_umask: None, tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", b"x")
    (tmp_path / "secret").chmod(0o666)
    assert write_atomic(tmp_path / "secret", b"x")
    assert open_to_others(tmp_path) == []


def test_a_machine_that_joins_and_locks(no_umask: None, bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """Its ticket store, its key, the lock and its log."""
    machine = machines()
    assert machine.ask()
    measured = machine.directory / "measured"
    measured.touch(mode=0o600)
    measured.write_bytes(machine.boot.userspace)
    paths = NodeLockPaths(directory=machine.directory / "run", userspace_log=measured)
    paths.directory.mkdir(mode=0o700)
    NodeLock(machine.tpm, paths=paths).acquire(bed.bundle.cluster_id)
    made = [path for path in machine.directory.rglob("*") if path.is_file()]
    assert len(made) > 3
    inner = open_to_others(machine.directory)
    assert [name for name in inner if (machine.directory / name).is_file()] == []


def test_what_the_services_keep_open(bed: ServiceBed) -> None:
    """Sockets and credentials of both services, whose directories are theirs."""
    assert bed.socket.stat().st_mode & OTHERS == 0
    for folder in (bed.directory / "key-service", bed.directory / "join"):
        assert folder.stat().st_mode & 0o077 == 0


WRITERS = {"write_bytes", "write_text", "mkstemp", "NamedTemporaryFile"}
KNOWN = {
    "plugins/module_utils/core/files.py",
}


def test_files_are_written_in_few_places() -> None:
    """Anything that writes by itself says its mode beside, or is listed here with its reason."""
    found = set()
    for path in house.plugin_files():
        if "/bundle/" in str(path) or "/callback/" in str(path):
            continue  # programs and images of a bundle, which everybody may read
        for node in ast.walk(house.tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS:
                found.add(house.shown(path))
    assert found - KNOWN == set()
