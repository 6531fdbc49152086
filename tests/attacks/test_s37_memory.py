# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S37: the memory of a node is read: by swap, by a core dump, by root. The process that lives on holds no key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.process import harden, read_key
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import disk_key
from ansible_collections.attested.kubernetes.tests.support import ticket_node
from ansible_collections.attested.kubernetes.tests.support.memory import memory_holds
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services import (
    test_received_ticket as tickets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S37",
    title="Memory disclosure",
    case="swap, core dumps, copies of strings in Python",
    bed="bytes",
    stops=(
        ("keyservice/ticket.py", ""),
        ("disk/process.py step 1", "SWAP_ACTIVE"),
        ("disk/process.py step 2", "STATE_DISK_UNGUARDED"),
        ("disk/process.py", "NOT_TMPFS"),
    ),
)

GUARDED = """
import ctypes, resource
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.process import harden
harden()
status = open("/proc/self/status").read()
locked = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmLck"))
print(locked > 0, resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def needs_what_the_key_process_needs() -> None:
    if len(Path("/proc/swaps").read_text(encoding="utf-8").splitlines()) > 1:
        pytest.skip("swap is on here, and the process that holds keys refuses to run")
    if os.geteuid():
        pytest.skip("locking all memory needs root")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def settings(tmp_path: Path, *, opens_itself: bool) -> dict[str, Any]:
    """Return what the node is told: a genuine answer of the key service, and a disk that is not there."""
    node = tickets.Node()
    given = {
        "answer": node.answer(),
        "cluster_id": tickets.bundle().cluster_id,
        "binding": tickets.BINDING,
        "kubelet_key": tickets.pem(node.key),
        "join_ca": tickets.JOIN_CA.certificate,
        "secret": tickets.SECRET,
        "one_time_key": node.one_time_key.export(),
    }
    disk = {
        "device": "/dev/disk/by-id/there-is-no-such-disk",
        "uuid": tickets.DISK.uuid,
        "state": "opened",
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
    texts = {name: b64encode(value).decode() for name, value in given.items()}
    return {
        "bytes": texts,
        "node_name": "w-1",
        "now": tickets.NOW.isoformat(),
        "disk": disk,
        "opens_itself": opens_itself,
    }


def found_in_memory(told: dict[str, Any]) -> tuple[str, dict[str, bool]]:
    """Return what became of the disk, and what is in the memory of the process that lives on."""
    argv = [sys.executable, "-m", ticket_node.__name__]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(json.dumps(told) + "\n")
        node.stdin.flush()
        code = node.stdout.readline().strip()
        needles = {
            "cluster id": tickets.bundle().cluster_id,
            "disk key": disk_key(tickets.MASTER, tickets.DISK).reveal(),
            "measurement secret": tickets.bundle().measurement_secret().reveal(),
        }
        found = {name: memory_holds(node.pid, needle) for name, needle in needles.items()}
        node.stdin.close()
        assert node.wait() == 0
    return code, found


@pytest.mark.parametrize(
    ("opens_itself", "there"),
    [
        pytest.param(False, False, id="as it does: another process opens the box"),
        pytest.param(True, True, id="the measure: what was opened here is found"),
    ],
)
def test_the_process_that_lives_on_holds_no_key(tmp_path: Path, opens_itself: bool, there: bool) -> None:
    """The key process got as far as the disk, so the box did open there."""
    needs_what_the_key_process_needs()
    code, found = found_in_memory(settings(tmp_path, opens_itself=opens_itself))
    assert code == "STATE_DISK_MISSING"
    assert found == {"cluster id": True, "disk key": there, "measurement secret": there}


def test_the_process_that_holds_keys_can_be_neither_swapped_out_nor_dumped() -> None:
    needs_what_the_key_process_needs()
    argv = [sys.executable, "-c", GUARDED]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True (0, 0) 0"


class Kernel:
    """A kernel whose answers the test gives: it locks memory, it forbids dumps."""

    def __init__(self, *, locks: int, forbids: int) -> None:
        self._answers = locks, forbids

    def mlockall(self, flags: int) -> int:
        del flags
        return self._answers[0]

    def prctl(self, option: int, *values: int) -> int:
        del option, values
        return self._answers[1]


@pytest.mark.parametrize(
    ("swaps", "kernel", "code"),
    [
        pytest.param("/dev/sda2 partition 1\n", Kernel(locks=0, forbids=0), "SWAP_ACTIVE", id="swap is on"),
        pytest.param("", Kernel(locks=-1, forbids=0), "STATE_DISK_UNGUARDED", id="its memory is not locked"),
    ],
)
def test_a_process_without_guards_touches_no_key(tmp_path: Path, swaps: str, kernel: Kernel, code: str) -> None:
    table = tmp_path / "swaps"
    table.write_text(f"Filename Type Size\n{swaps}", encoding="utf-8")
    assert code_of(lambda: harden(libc=kernel, swaps=str(table))) == code


def test_a_key_on_a_disk_is_not_read(tmp_path: Path) -> None:
    key, mounts = tmp_path / "key", tmp_path / "mounts"
    key.touch(mode=0o600)
    key.write_bytes(bytes(32))
    read: Callable[[], object] = lambda: read_key(key, mounts=mounts)  # noqa: E731
    mounts.write_text("none / tmpfs rw 0 0\n", encoding="utf-8")
    assert read()
    mounts.write_text("none / ext4 rw 0 0\n", encoding="utf-8")
    assert code_of(read) == "NOT_TMPFS"
