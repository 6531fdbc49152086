# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a test gets into the machines of a lab with virtual ones, and reads what a recovery says of them."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import Outcome, table
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab
from ansible_collections.attested.kubernetes.tests.support.vm_bed import (
    STATE_DISK,
    HybridRoad,
    put_disks_into_site,
    row_of,
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that were run, none of them for real."""
    commands: list[list[str]] = []

    def run(argv: list[str], **_named: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(argv)
        return subprocess.CompletedProcess(argv, 0, stdout=b"said\n", stderr=b"")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def a_road(plane: str) -> HybridRoad:
    lab = Lab(name="none", directory=Path("/lab"), loopback="127.0.0")
    return HybridRoad(lab=lab, watch=ProcessWatch(), began=time.time(), plane=plane)


@pytest.mark.parametrize(
    ("machine", "way"),
    [
        pytest.param("cp-1", ["/lab/podman", "exec"], id="a container by podman"),
        pytest.param("vw-2", ["ssh", "-F"], id="a virtual machine that is a worker by ssh"),
        pytest.param("vc-1", ["ssh", "-F"], id="one that is a control plane by ssh"),
    ],
)
def test_each_kind_of_machine_has_its_way_in(ran: list[list[str]], machine: str, way: list[str]) -> None:
    assert a_road("cp-1").inside(machine, "cat", "it's") == "said\n"
    assert ran[0][:2] == way
    assert machine in ran[0]


@pytest.mark.parametrize("plane", ["cp-1", "vc-1"])
def test_kubectl_asks_the_control_plane_that_the_lab_has(ran: list[list[str]], plane: str) -> None:
    a_road(plane).kubectl("get", "nodes")
    a_road(plane).kubectl("get", "nodes", asked="cp-3")
    assert [next(one for one in ("cp-1", "cp-3", "vc-1") if one in argv) for argv in ran] == [plane, "cp-3"]


def test_a_row_of_the_table_is_what_became_of_a_machine() -> None:
    one = Outcome(node="vc-1", endpoint="192.0.2.1:9999", role="control-plane", seconds=3.2)
    outcomes = [
        one,
        replace(one, node="vw-1", role="worker", reason=Reason.PCR_MISMATCH),
        replace(one, node="vw-2", role="worker", reason=Reason.RECOVERY_RACE_LOST),
    ]
    told = "\n".join(["TASK [Recovery] ***", *(f"  {row}" for row in table(outcomes)), "changed: [vc-1] => {}"])
    assert row_of(told, "vc-1").startswith("recovered ")
    assert "PCR_MISMATCH" in row_of(told, "vw-1")
    assert row_of(told, "vw-2").startswith("another was first ")
    assert row_of(told, "vw-3") == ""


def test_a_site_says_of_each_machine_that_is_named_that_it_has_a_disk(tmp_path: Path) -> None:
    put_disks_into_site(tmp_path, ("vc-1", "vw-1"))
    found = {file.parent.name: json.loads(file.read_text()) for file in tmp_path.glob("host_vars/*/state_disk.yml")}
    assert {name: one["attested_state_disk"] for name, one in found.items()} == {"vc-1": STATE_DISK, "vw-1": STATE_DISK}
