# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab decides of its virtual machines, without starting one."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = ROLE / "files" / "host"
NAMES = ("common", "image", "machines", "vm_image", "vms", "host")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The programs of the role, imported as Python does that starts one of them: from their own directory."""
    monkeypatch.syspath_prepend(str(HOST))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return {name: importlib.import_module(name) for name in NAMES}


def a_vm(programs: dict[str, Any], root: Path, **hardware: Any) -> Any:
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=root, cache=root / "cache")
    machine = programs["machines"].Machine(
        name="vw-1", address="10.89.7.51", forward="127.44.0.51", mounts={"/srv/bundles": "/b"}, hardware=hardware
    )
    vm = programs["vms"].Vm(lab=lab, machine=machine, image=programs["vm_image"].image(lab))
    vm.home.mkdir(parents=True)
    return vm


def test_a_virtual_machine_has_the_packages_of_a_container_and_a_kernel(programs):
    node, vm = programs["image"].recipe(), programs["vm_image"].recipe(Path("root"))
    packages = [
        set(word.removeprefix("--include=").split(","))
        for words in (node, vm)
        for word in words
        if word.startswith("--include=")
    ]
    assert packages[0] < packages[1]
    assert {"linux-image-amd64", "systemd-boot-efi"} <= packages[1] - packages[0]
    assert vm[-2] == node[-2] == "bookworm"


@pytest.mark.parametrize("what", ["COMMAND_LINE", "EDITION", "SUITE", "TABLE"])
def test_another_recipe_is_another_image(programs, tmp_path, monkeypatch, what):
    vm_image = programs["vm_image"]
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path)
    before = vm_image.image(lab)
    assert vm_image.image(lab) == before
    monkeypatch.setattr(vm_image, what, getattr(vm_image, what) + "x")
    assert vm_image.image(lab) != before


def test_another_unit_in_the_guest_is_another_image_and_another_place_of_the_collection_is_not(
    programs, tmp_path, monkeypatch
):
    vm_image = programs["vm_image"]
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path)
    before, units = vm_image.image(lab), vm_image.UNITS
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    unit = vm_image.GUEST / "lab-machine.service"
    (copy / unit.name).write_text(unit.read_text())
    monkeypatch.setattr(vm_image, "UNITS", units.replace(str(vm_image.GUEST), str(copy)))
    monkeypatch.setattr(vm_image, "GUEST", copy)
    assert vm_image.image(lab) == before
    (copy / unit.name).write_text(unit.read_text() + "# changed\n")
    assert vm_image.image(lab) != before


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        pytest.param({}, ["-accel", "tcg,thread=multi,tb-size=256"], id="emulated, unless it is asked for otherwise"),
        pytest.param({"acceleration": "kvm"}, ["-accel", "kvm"], id="KVM where it was asked for"),
    ],
)
def test_the_acceleration_is_the_one_that_was_asked_for_and_never_a_second_choice(
    programs, tmp_path, hardware, expected
):
    words = programs["vms"].words(a_vm(programs, tmp_path, **hardware))
    place = words.index("-accel")
    assert words[place : place + 2] == expected
    assert words.count("-accel") == 1


def test_each_device_has_a_place_of_its_own(programs, tmp_path):
    vm = a_vm(programs, tmp_path)
    vm.machine.mounts.update({"/srv/more": "/m", "/srv/most": "/n"})
    words = programs["vms"].words(vm)
    places = re.findall(r"addr=(0x[0-9a-f]+)", " ".join(words))
    assert len(places) == len(set(places)) == 9


def test_what_a_machine_sees_of_the_host_is_read_only(programs, tmp_path):
    words = programs["vms"].words(a_vm(programs, tmp_path))
    shares = [words[n + 1] for n, word in enumerate(words) if word == "-fsdev"]
    assert len(shares) == 3
    assert all(share.endswith(",readonly=on") for share in shares)


def test_a_machine_has_no_way_out_but_the_segment_of_the_lab(programs, tmp_path):
    words = programs["vms"].words(a_vm(programs, tmp_path))
    assert [words[n + 1].split(",")[0] for n, word in enumerate(words) if word == "-netdev"] == ["tap"]
    assert not [word for word in words if "hostfwd" in word or "tcp:" in word]


def test_a_command_line_is_written_once_and_only_where_it_differs(programs, tmp_path, monkeypatch):
    vms, lines = programs["vms"], []

    def made(_parts: Path, target: Path, *, command_line: str) -> None:
        lines.append(command_line)
        target.write_bytes(b"")

    monkeypatch.setattr(vms, "make_system_partition", made)
    monkeypatch.setattr(vms, "run", lambda *_words: "")
    assert vms.put_command_line(a_vm(programs, tmp_path)) is False
    changed = vms.Vm(
        lab=programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path),
        machine=programs["machines"].Machine(
            name="vw-1", address="10.89.7.51", forward="f", hardware={"command_line": "quiet evil"}
        ),
        image=programs["vm_image"].VmImage(path=tmp_path),
    )
    assert [vms.put_command_line(changed), vms.put_command_line(changed)] == [True, False]
    assert lines == ["quiet evil"]


@pytest.fixture
def qemu(programs, tmp_path) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """A process that could be QEMU: its arguments name the machine's directory, and its id is in the pid file."""
    vm = a_vm(programs, tmp_path)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(vm.home)])
    vm.pid_file.write_text(f"{process.pid}\n")
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    yield vm, process
    process.kill()
    reaper.join()


def test_power_is_cut_without_a_word(programs, qemu):
    vm, process = qemu
    assert [programs["vms"].cut(vm), programs["vms"].cut(vm)] == [True, False]
    assert process.wait() == -signal.SIGKILL


def test_a_process_that_has_ended_and_that_nobody_waited_for_has_ended(programs):
    process = subprocess.Popen([sys.executable, "-c", ""])
    assert programs["vms"].ended(process.pid, 60) is True
    assert Path(f"/proc/{process.pid}").exists()
    process.wait()


def test_a_process_that_is_not_the_machine_is_left_alone(programs, tmp_path):
    vm = a_vm(programs, tmp_path)
    vm.pid_file.write_text(f"{os.getpid()}\n")  # the id of a machine that has ended, used again
    assert programs["vms"].cut(vm) is False


def serve_monitor(path: Path, heard: list[str], process: subprocess.Popen[bytes]) -> threading.Thread:
    """Speak QEMU's protocol once: a greeting, an answer to each command; the machine ends at its power button."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.settimeout(30)

    def serve() -> None:
        with listener, listener.accept()[0] as link:
            link.sendall(b'{"QMP": {"version": {}, "capabilities": []}}\r\n')
            decoder, text = json.JSONDecoder(), ""
            while "system_powerdown" not in heard:
                data = link.recv(4096)
                if not data:
                    return  # it hung up without a word
                text += data.decode()
                while text:
                    command, end = decoder.raw_decode(text)
                    text = text[end:]
                    heard.append(command["execute"])
                    link.sendall(b'{"return": {}}\r\n')
        process.terminate()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_machine_is_shut_down_by_its_power_button(programs, qemu):
    vm, process = qemu
    heard: list[str] = []
    (vm.home / "tpm").mkdir()
    server = serve_monitor(vm.home / "tpm" / "monitor", heard, process)
    assert programs["vms"].shut_down(vm) is True
    server.join()
    assert heard == ["qmp_capabilities", "system_powerdown"]
    assert process.wait() == -signal.SIGTERM


def test_a_machine_that_does_not_listen_is_cut(programs, qemu):
    vm, process = qemu
    assert programs["vms"].shut_down(vm) is True
    assert process.wait() == -signal.SIGKILL


def test_the_end_of_a_lab_is_the_end_of_its_virtual_machines(programs, qemu):
    vm, process = qemu
    programs["host"].end_processes(vm.lab)
    assert process.wait() == -signal.SIGTERM


def missing(*words: str) -> dict[str, Any]:
    look = [sys.executable, "-B", str(HOST / "check.py"), "--path", "/nowhere", *words]
    found: dict[str, Any] = json.loads(subprocess.run(look, capture_output=True, check=True).stdout)
    return found


def test_packages_of_virtual_machines_are_asked_for_where_there_are_any():
    more = set(missing("--virtual-machines")["packages"]) - set(missing()["packages"])
    assert {"qemu-system-x86", "qemu-utils", "mtools"} <= more
    assert "swtpm" not in more


@pytest.mark.parametrize("count", [0, 2])
def test_virtual_machines_are_workers_of_the_site_and_a_group_of_their_own(count):
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    vms = dict(list(variables["__lab_machines_possible_vm_workers"].items())[:count])
    text = jinja2.Template((ROLE / "templates" / "hosts.yml.j2").read_text(), trim_blocks=True).render(
        __lab_machines_control_planes={"cp-1": 11},
        __lab_machines_workers={},
        __lab_machines_vm_workers=vms,
        __lab_machines_subnet="10.89.7",
        lab_machines_loopback="127.44.0",
    )
    workers = yaml.safe_load(text)["nodes"]["children"]["workers"]
    found = workers.get("children", {}).get("virtual_machines", {}).get("hosts", {})
    assert list(found) == list(vms)
    assert all(host["attested_node_ip"] == f"10.89.7.{vms[name]}" for name, host in found.items())


def test_the_forwarder_listens_for_every_virtual_machine_that_there_can_be(programs, monkeypatch):
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    forward = importlib.import_module("forward")
    assert set(variables["__lab_machines_possible_vm_workers"].values()) <= set(forward.NUMBERS)


def a_program(made_at: int, checksum: int) -> bytes:
    head = b"MZ".ljust(0x3C, b"\0") + (0x80).to_bytes(4, "little") + bytes(0x40)
    time_of_making = made_at.to_bytes(4, "little")
    return (
        head + b"PE\0\0" + b"\x64\x86\x02\x00" + time_of_making + bytes(76) + checksum.to_bytes(4, "little") + b"code"
    )


def test_the_same_program_made_at_another_time_is_measured_alike(programs, tmp_path):
    made = [tmp_path / "first.efi", tmp_path / "second.efi"]
    for path, words in zip(made, ((1, 2), (3, 4)), strict=True):
        path.write_bytes(a_program(*words))
        programs["vm_image"].forget_time(path)
    assert made[0].read_bytes() == made[1].read_bytes() == a_program(0, 0)


def test_what_is_no_program_is_not_put_where_the_firmware_looks(programs, tmp_path):
    (tmp_path / "text").write_bytes(b"#!/bin/sh".ljust(200))
    with pytest.raises(programs["common"].LabError, match="program for the firmware"):
        programs["vm_image"].forget_time(tmp_path / "text")
