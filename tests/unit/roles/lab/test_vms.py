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
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE, ROOT

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
    vm = programs["vms"].Vm(lab=lab, machine=machine, image=programs["vm_image"].image(lab, "bookworm"))
    vm.home.mkdir(parents=True)
    return vm


def test_a_virtual_machine_has_the_packages_of_a_container_and_a_kernel(programs):
    node, vm = programs["image"].recipe("bookworm"), programs["vm_image"].recipe(Path("root"), "bookworm")
    packages = [
        set(word.removeprefix("--include=").split(","))
        for words in (node, vm)
        for word in words
        if word.startswith("--include=")
    ]
    assert packages[0] < packages[1]
    assert {"linux-image-amd64", "systemd-boot-efi"} <= packages[1] - packages[0]
    assert vm[-2] == node[-2] == "bookworm"


@pytest.mark.parametrize("what", ["COMMAND_LINE", "EDITION", "TABLE"])
def test_another_recipe_is_another_image(programs, tmp_path, monkeypatch, what):
    vm_image = programs["vm_image"]
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path)
    before = vm_image.image(lab, "bookworm")
    assert vm_image.image(lab, "bookworm") == before
    monkeypatch.setattr(vm_image, what, getattr(vm_image, what) + "x")
    assert vm_image.image(lab, "bookworm") != before


def test_another_unit_in_the_guest_is_another_image_and_another_place_of_the_collection_is_not(
    programs, tmp_path, monkeypatch
):
    vm_image = programs["vm_image"]
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path)
    before, units = vm_image.image(lab, "bookworm"), vm_image.UNITS
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    unit = vm_image.GUEST / "lab-machine.service"
    (copy / unit.name).write_text(unit.read_text())
    monkeypatch.setattr(vm_image, "UNITS", units.replace(str(vm_image.GUEST), str(copy)))
    monkeypatch.setattr(vm_image, "GUEST", copy)
    assert vm_image.image(lab, "bookworm") == before
    (copy / unit.name).write_text(unit.read_text() + "# changed\n")
    assert vm_image.image(lab, "bookworm") != before


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


VARIABLES = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
POSSIBLE = {
    kind: VARIABLES[f"__lab_machines_possible_{kind}"]
    for kind in ("control_planes", "workers", "vm_control_planes", "vm_workers")
}


def rendered(template: str, *, suites: dict[str, str] | None = None, **counts: int) -> Any:
    """Render a template of the role for so many machines of each kind, and read it."""
    chosen = {kind: dict(list(known.items())[: counts.get(kind, 0)]) for kind, known in POSSIBLE.items()}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True)
    environment.filters |= {"bool": bool, "combine": dict.__or__, "to_json": json.dumps}
    environment.tests["file"] = lambda path: Path(path).is_file()
    text = environment.from_string((ROLE / "templates" / template).read_text()).render(
        **{f"__lab_machines_{kind}": machines for kind, machines in chosen.items()},
        __lab_machines_vms=chosen["vm_control_planes"] | chosen["vm_workers"],
        __lab_machines_mounts={"/srv/bundles": "/b"},
        __lab_machines_hardware={"memory_mebibytes": 2048},
        __lab_machines_control_plane_hardware={"memory_mebibytes": 3072},
        __lab_machines_subnet="10.89.7",
        role_path="/role",
        lab_machines_directory="/lab",
        lab_machines_loopback="127.44.0",
        __lab_machines_known_suites=VARIABLES["__lab_machines_known_suites"],
        lab_machines_suites=suites or {},
        lab_machines_bootstrapper=False,
    )
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    ("counts", "planes", "workers", "virtual"),
    [
        pytest.param({"control_planes": 1}, ["cp-1"], [], [], id="a container alone"),
        pytest.param(
            {"control_planes": 1, "workers": 1, "vm_workers": 2},
            ["cp-1"], ["w-1", "vw-1", "vw-2"], ["vw-1", "vw-2"],
            id="virtual machines are workers, after those in containers",
        ),
        pytest.param(
            {"control_planes": 2, "vm_control_planes": 1, "workers": 1},
            ["cp-1", "cp-2", "vc-1"], ["w-1"], ["vc-1"],
            id="a virtual machine is a control plane, and does not make the cluster",
        ),
        pytest.param(
            {"vm_control_planes": 1, "vm_workers": 1}, ["vc-1"], ["vw-1"], ["vc-1", "vw-1"],
            id="a virtual machine makes the cluster, where no container is a control plane",
        ),
    ],
)  # fmt: skip
def test_virtual_machines_are_nodes_of_the_site_and_a_group_of_their_own(counts, planes, workers, virtual):
    groups = rendered("hosts.yml.j2", **counts)["nodes"]["children"]
    assert [list(groups[name]["hosts"]) for name in ("control_planes", "workers")] == [planes, workers]
    assert list(groups.get("virtual_machines", {}).get("hosts", {})) == virtual
    number = {name: number for known in POSSIBLE.values() for name, number in known.items()}
    found = groups["control_planes"]["hosts"] | groups["workers"]["hosts"]
    assert {name: host["attested_node_ip"] for name, host in found.items()} == {
        name: f"10.89.7.{number[name]}" for name in (*planes, *workers)
    }


def test_another_debian_is_another_image(programs, tmp_path):
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path)
    images = [programs["vm_image"].image(lab, suite).path for suite in ("bookworm", "trixie")]
    assert len(set(images)) == 2


@pytest.mark.parametrize("base", [0, 0x14DF40000], ids=["as in Debian 12", "as in Debian 13"])
def test_sections_are_counted_from_the_base_of_the_stub(programs, tmp_path, base):
    stub = bytearray(256)
    stub[0x3C:0x40] = (64).to_bytes(4, "little")
    stub[64:68] = b"PE\0\0"
    stub[112:120] = base.to_bytes(8, "little")
    (tmp_path / "stub").write_bytes(stub)
    assert programs["vm_image"].base_of(tmp_path / "stub") == base


def test_a_stub_that_is_no_program_is_refused(programs, tmp_path):
    (tmp_path / "stub").write_bytes(bytes(256))
    with pytest.raises(programs["common"].LabError, match="expected a program for the firmware"):
        programs["vm_image"].base_of(tmp_path / "stub")


def test_a_machine_with_another_debian_has_its_image_and_its_python():
    suites = {"cp-1": "trixie", "w-2": "trixie", "vw-1": "trixie"}
    groups = rendered("hosts.yml.j2", suites=suites, control_planes=1, workers=2)["nodes"]["children"]
    found = groups["control_planes"]["hosts"] | groups["workers"]["hosts"]
    assert {name: host.get("attested_python_version") for name, host in found.items()} == {
        "cp-1": "3.13",
        "w-1": None,
        "w-2": "3.13",
    }
    machines = rendered("machines.json.j2", suites=suites, control_planes=1, workers=2)
    assert [one["suite"] for one in machines] == ["trixie", "bookworm", "trixie"]
    assert [one["suite"] for one in rendered("vms.json.j2", suites=suites, vm_workers=2)] == ["trixie", "bookworm"]


@pytest.mark.parametrize(
    ("counts", "address", "profiles"),
    [
        pytest.param({"control_planes": 1}, "127.44.0.11:6443", None, id="containers alone"),
        pytest.param(
            {"control_planes": 1, "vm_control_planes": 1}, "127.44.0.11:6443", ["lab", "lab-vm"], id="one of each"
        ),
        pytest.param(
            {"vm_control_planes": 1, "workers": 1}, "127.44.0.61:6443", ["lab", "lab-vm"], id="a worker in a container"
        ),
        pytest.param({"vm_control_planes": 1, "vm_workers": 1}, "127.44.0.61:6443", ["lab-vm"], id="no container"),
    ],
)
def test_the_admin_reaches_the_first_control_plane_and_the_profiles_are_those_of_the_machines(
    counts, address, profiles
):
    found = rendered("lab.yml.j2", **counts)
    assert (found["attested_admin_api_address"], found.get("attested_profiles")) == (address, profiles)


def test_a_control_plane_has_hardware_of_its_own():
    found = rendered("vms.json.j2", vm_control_planes=1, vm_workers=1)
    assert {one["name"]: one["hardware"]["memory_mebibytes"] for one in found} == {"vc-1": 3072, "vw-1": 2048}


def test_every_machine_has_a_number_of_its_own_and_the_forwarder_listens_for_it(programs):
    numbers = [number for known in POSSIBLE.values() for number in known.values()]
    assert len(set(numbers)) == len(numbers)
    assert not set(numbers) & set(range(31, 50)), "these are for guests"
    assert set(numbers) <= set(importlib.import_module("forward").NUMBERS)


def test_the_name_of_the_api_leads_to_whatever_may_be_a_control_plane(programs):
    numbers = [*POSSIBLE["control_planes"].values(), *POSSIBLE["vm_control_planes"].values()]
    assert tuple(f"10.89.7.{number}" for number in numbers) == programs["machines"].CONTROL_PLANES


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, known in POSSIBLE.items() for name in known])
def test_one_machine_is_started_by_its_number_and_as_what_it_is(kind, name):
    (play,) = yaml.safe_load((ROOT / "playbooks" / "lab_machine.yml").read_text())
    environment = jinja2.Environment(autoescape=False)
    environment.filters["regex_replace"] = lambda text, pattern, new: re.sub(pattern, new, text)
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    number, made_as = (
        environment.from_string(play["tasks"][0]["vars"][f"lab_machines_machine_{what}"]).render(machine=name)
        for what in ("number", "kind")
    )
    assert (int(number), made_as) == (POSSIBLE[kind][name], "vm" if kind.startswith("vm_") else "container")


def names_known(root: Path, machine: str) -> list[str]:
    """Return the lines of a machine's hosts file that say where the API is."""
    lines = (root / "machines" / machine / "machine" / "hosts").read_text().splitlines()
    return [line for line in lines if line.endswith(" api.lab.test")]


def test_containers_know_a_control_plane_that_is_a_virtual_machine_before_they_start(programs, tmp_path, monkeypatch):
    machines, vms = programs["machines"], programs["vms"]
    lab = programs["common"].Lab(name="lab", loopback="127.44.0", root=tmp_path, cache=tmp_path / "cache")
    plane = machines.Machine(name="vc-1", address="10.89.7.61", forward="127.44.0.61")
    worker = machines.Machine(name="w-1", address="10.89.7.21", forward="127.44.0.21")
    seen = []
    monkeypatch.setattr(machines, "machine_store", lambda _lab: None)
    monkeypatch.setattr(machines, "write_certificates", lambda *_words: None)
    monkeypatch.setattr(machines, "ensure", lambda *_words, **_more: seen.extend(names_known(tmp_path, "w-1")))
    assert vms.describe(lab, [plane]) == ["vc-1", "names"]
    machines.start(lab, [worker])
    assert seen == names_known(tmp_path, "vc-1") == ["10.89.7.61 api.lab.test"]
    assert vms.describe(lab, [plane]) == []


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
