# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine with Debian 13 becomes a worker of a cluster whose control plane is a container with Debian 12.

Its own firmware, its own boot as systemd 257 measures it, and its state on a disk that cryptsetup 2.7 formats. The
tests are in the order of one lab's life and share it. What each took is printed, and fails nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.vm_bed import (
    VM,
    HybridRoad,
    assert_locked_once,
    assert_on_its_disk,
    hybrid_road,
    run_a_pod,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_DEBIAN13_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through lab and init; it is used and left."""

WORDS = ("-e", f'{{"lab_workers": 0, "lab_vm_workers": 1, "lab_suites": {{"{VM}": "trixie"}}}}')


@pytest.fixture(scope="module")
def road() -> Iterator[HybridRoad]:
    """A cluster of one control plane, and a virtual machine that was prepared and that nobody runs anything on."""
    made = ("lab", "init")
    with hybrid_road(*made, of="attested-debian13:127.83.0", instead=USED_LAB, words=WORDS, disks=(VM,)) as one:
        yield one


@pytest.mark.usefixtures("took")
def test_it_joins_with_its_state_on_its_own_disk_and_runs_a_pod(road: HybridRoad) -> None:
    road.joined(VM)
    assert_on_its_disk(road, VM)
    assert_locked_once(road, VM)
    system = road.kubectl("get", "nodes", "--output=jsonpath={.items[*].status.nodeInfo.osImage}")
    assert re.findall(r"Linux (\d+)", system) == ["12", "13"]
    assert road.inside(VM, "cryptsetup", "--version").startswith("cryptsetup 2.7.")
    kernel = road.inside(VM, "uname", "--kernel-release")
    assert run_a_pod(road, VM, "on-debian-13") == kernel
    road.put_marker(VM, "first-boot")


@pytest.mark.usefixtures("took")
def test_its_evidence_is_accepted(road: HybridRoad) -> None:
    """With the log of its own systemd: what it says of the boot leads to the registers that the quote has.

    An emulated machine beside other work may need longer than `verify` waits for a connection; then it runs again.
    """

    def is_accepted() -> bool:
        run = road.finish("verify", road.start("verify", *WORDS))
        assert run.returncode == 0 or "CONNECTION_TIMEOUT" in run.output, run.complaint()
        return run.returncode == 0

    wait_for(is_accepted, every=10)
    assert road.inside(VM, "test", "-s", "/run/log/systemd/tpm2-measure.log", "-a", "-c", "/dev/tpmrm0") == ""


@pytest.mark.usefixtures("took")
def test_a_reboot_brings_it_back_by_a_ticket(road: HybridRoad) -> None:
    """The TPM was reset and the disk was locked; nothing is formatted anew."""
    before = road.volume(VM)
    road.reboot(VM)
    road.joined(VM)
    assert_on_its_disk(road, VM)
    assert_locked_once(road, VM)
    assert road.volume(VM) == before
    assert road.marker(VM) == "first-boot"
