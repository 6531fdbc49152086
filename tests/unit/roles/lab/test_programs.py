# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the programs of the lab decide, without making a lab."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.lab import BOOTS, ROLE, recorded_registers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(monkeypatch):
    """Import a program of the role as Python does that starts it: from its own directory."""

    def load(name: str):
        monkeypatch.syspath_prepend(str(ROLE / "files" / ("node" if name == "replay_boot" else "host")))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize("boot", ["deb13-base", "deb13-cmdline", "deb13-firmware"])
def test_the_events_that_a_machine_replays_make_the_recorded_registers(program, boot):
    replay = program("replay_boot")
    registers = {index: bytes(32) for index in range(16)}
    logs = ROLE / "files" / "boots" / boot
    events = [
        *replay.firmware_events((logs / "eventlog.bin").read_bytes()),
        *replay.userspace_events((logs / "userspace.json").read_bytes()),
    ]
    for index, digest in events:
        registers[index] = hashlib.sha256(registers[index] + digest).digest()
    expected = {index: value for index, value in recorded_registers(boot).items() if index < 16}
    assert {index: value.hex().upper() for index, value in registers.items() if index in expected} == expected


@pytest.mark.parametrize("boot", ["deb13-base", "deb13-cmdline", "deb13-firmware"])
@pytest.mark.parametrize("log", ["eventlog.bin", "userspace.json"])
def test_the_recordings_of_the_role_are_those_of_the_tests(boot, log):
    assert (ROLE / "files" / "boots" / boot / log).read_bytes() == (BOOTS / boot / log).read_bytes()


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        pytest.param(bytes(100), "crypto-agile", id="a log without the header of crypto-agile logs"),
        pytest.param(b"\xff" * 40, None, id="a header longer than the log"),
    ],
)
def test_a_broken_log_is_not_replayed(program, log, complaint):
    replay = program("replay_boot")
    with pytest.raises((replay.ReplayError, ValueError), match=complaint):
        list(replay.firmware_events(log))


def test_a_machine_has_one_hardware_address_over_restarts_and_no_other_machine_has_it(program):
    machines = program("machines")
    found = [
        machines.hardware_address(machines.Machine(name=name, address=address, forward="127.44.0.1", boot="b"))
        for name, address in (("w-1", "10.89.7.21"), ("w-1", "10.89.7.21"), ("w-2", "10.89.7.22"))
    ]
    assert found == ["02:00:0a:59:07:15", "02:00:0a:59:07:15", "02:00:0a:59:07:16"]


def labs(program, root: Path, monkeypatch, **times: float):
    """Register labs that were made at the given times, each with a record that says so."""
    host = program("host")
    monkeypatch.setattr(host, "REGISTER", root / "register")
    (root / "register").mkdir()
    common = sys.modules["common"]
    found = {}
    for name, moment in times.items():
        lab = common.Lab(name=name, loopback="127.44.0", root=root / name, cache=root / "cache")
        lab.root.mkdir()
        record = {"boot_id": host.boot_id(), "time": moment, "sysctls": {"found by": name}}
        (lab.root / "record.json").write_text(json.dumps(record))
        (root / "register" / name).write_text(f"{lab.root / 'record.json'}\n")
        found[name] = (lab, record)
    return host, found


def found_by(root: Path, name: str) -> str:
    return json.loads((root / name / "record.json").read_text())["sysctls"]["found by"]


def test_the_last_lab_puts_back_what_the_first_one_found(program, tmp_path, monkeypatch):
    host, found = labs(program, tmp_path, monkeypatch, first=1.0, second=2.0, third=3.0)
    assert host.hand_over(*found["first"]) is True
    assert [found_by(tmp_path, name) for name in ("second", "third")] == ["first", "first"]


def test_a_later_lab_does_not_overwrite_an_earlier_record(program, tmp_path, monkeypatch):
    host, found = labs(program, tmp_path, monkeypatch, first=1.0, second=2.0)
    assert host.hand_over(*found["second"]) is True
    assert found_by(tmp_path, "first") == "first"


def test_the_only_lab_hands_over_to_nobody(program, tmp_path, monkeypatch):
    host, found = labs(program, tmp_path, monkeypatch, only=1.0)
    assert host.hand_over(*found["only"]) is False
    assert not (tmp_path / "register").exists()


def test_of_two_labs_that_go_at_the_same_time_the_last_one_puts_the_host_back(program, tmp_path, monkeypatch):
    """The second goes while the first is removing its network: a namespace that is left keeps its mount."""
    host, found = labs(program, tmp_path, monkeypatch, first=1.0, second=2.0)
    done = []

    def remove(lab):
        if lab.name == "first":
            host.down(found["second"][0])
        done.append(f"network of {lab.name}")

    for step in ("end_processes", "remove_containers", "remove_groups"):
        monkeypatch.setattr(host, step, lambda _lab: None)
    monkeypatch.setattr(host, "remove_network", remove)
    monkeypatch.setattr(host, "restore", lambda before: done.append(f"as {before['sysctls']['found by']} found it"))
    assert host.down(found["first"][0])
    assert done == ["network of second", "network of first", "as first found it"]


def test_a_directory_that_is_no_lab_is_not_removed(program, tmp_path):
    host = program("host")
    common = sys.modules["common"]
    (tmp_path / "precious").write_text("x")
    lab = common.Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path / "cache")
    with pytest.raises(common.LabError, match="not removed"):
        host.down(lab)
    assert (tmp_path / "precious").exists()


def test_two_labs_build_the_image_one_after_the_other(program, monkeypatch, tmp_path):
    image, common = program("image"), program("common")
    built, inside = [], []

    def build(_podman, suite):
        inside.append(suite)
        assert len(inside) == 1, "another lab builds"
        time.sleep(0.2)
        built.append(image.image_name(inside.pop()))

    def store(_lab):
        return lambda *words, **_named: "sha256:built" if words[-1] in built else ""

    monkeypatch.setattr(image, "build", build)
    monkeypatch.setattr(image, "image_store", store)
    labs = [common.Lab(name=name, loopback="127.1.0", root=tmp_path / name, cache=tmp_path) for name in ("a", "b")]
    suites = ["bookworm", "trixie"]
    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(lambda lab: image.ensure(lab, suites), labs)) == [[], suites]
    assert len(set(built)) == 2


def test_a_suite_has_its_own_image_and_its_own_names_of_packages(program):
    image = program("image")
    packages = {
        suite: next(word for word in image.recipe(suite) if word.startswith("--include=")).split(",")
        for suite in ("bookworm", "trixie")
    }
    assert [image.recipe(suite)[-2] for suite in packages] == ["bookworm", "trixie"]
    assert set(packages["trixie"]) - set(packages["bookworm"]) == {"libtss2-tcti-swtpm0t64"}
    assert set(packages["bookworm"]) - set(packages["trixie"]) == {"libtss2-tcti-swtpm0"}
