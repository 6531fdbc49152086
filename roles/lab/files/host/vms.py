# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start virtual machines of the lab: firmware that measures, a TPM, a disk and a state disk, on the containers' bridge.

Reads the same JSON list as ``machines.py``; what a machine is made of stands under ``hardware`` (see ``Hardware``).
QEMU runs in the lab's network namespace, so a virtual machine and a node container are neighbours of one segment.
Every process has a pid file below the lab's directory, where ``lab_down`` finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from common import Lab, LabError, program, run, runs, write
from machines import (
    SOCKET_PATH_LIMIT,
    Machine,
    all_machines,
    hardware_address,
    make_tpm,
    stop_tpm,
    write_authorities,
    write_certificates,
    write_machine,
    write_names,
)
from vm_image import VmImage, image, make_system_partition

if TYPE_CHECKING:
    from collections.abc import Callable

FIRMWARE = Path("/usr/share/OVMF")
# its keys can be changed by the firmware alone, which then is in a mode of the processor of its own
SECURE_FIRMWARE = "OVMF_CODE_4M.secboot.fd"
SECURE_BOARD = ("q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on")
GATEWAY, PREFIX = "10.89.7.1", 24

# emulation takes about 30 s to a login on a quiet machine, and three times that on a busy one
RUNNING_SECONDS = 400.0
POWER_OFF_SECONDS = 90.0
END_SECONDS = 10.0

ACCELERATION = {
    # QEMU 7.2 emulates its newest processor more slowly than the oldest
    "tcg": ("-accel", "tcg,thread=multi,tb-size=256", "-cpu", "qemu64"),
    # never probed: a device file that opens does not say that a firmware runs on it
    "kvm": ("-accel", "kvm", "-cpu", "host"),
}

NETWORK = """\
[Match]
Name=eth0
[Network]
Address={address}/{prefix}
Gateway={gateway}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a virtual machine is made of; a command line other than the image's is measured as a changed one.

    ``secure_boot``: firmware that knows Secure Boot and has no keys, so it is off until somebody enrolls some.
    """

    memory_mebibytes: int = 2048
    processors: int = 1
    state_disk_mebibytes: int = 512
    acceleration: str = "tcg"
    command_line: str = ""
    secure_boot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """A machine with its directory, hardware and image."""

    lab: Lab
    machine: Machine
    image: VmImage
    home: Path = field(init=False)
    hardware: Hardware = field(init=False)

    def __post_init__(self) -> None:
        """Look up what follows from the machine."""
        object.__setattr__(self, "home", self.lab.machine(self.machine.name))
        object.__setattr__(self, "hardware", Hardware(**self.machine.hardware))

    @classmethod
    def of(cls, lab: Lab, machine: Machine) -> Vm:
        """Return the machine with the image of its suite."""
        return cls(lab=lab, machine=machine, image=image(lab, machine.suite))

    @property
    def pid_file(self) -> Path:
        """Process id of the machine itself."""
        return self.home / "vm.pid"

    @property
    def tap(self) -> str:
        """The name of its end of the segment."""
        return f"vm{self.machine.address.rpartition('.')[2]}"

    @property
    def shares(self) -> dict[str, tuple[Path, str]]:
        """What it sees of this host, read-only: tag to directory here and path there."""
        mounts = sorted(self.machine.mounts.items())
        return {f"mount{n}": (Path(source), path) for n, (path, source) in enumerate(mounts)}


def write_shares(vm: Vm) -> bool:
    """Write what the machine reads of itself at each boot; True if it differed."""
    own = vm.home / "machine"
    network = NETWORK.format(address=vm.machine.address, prefix=PREFIX, gateway=GATEWAY)
    mounts = "".join(f"{tag} {path}\n" for tag, (_source, path) in vm.shares.items())
    return any(
        [
            write(own / "hostname", f"{vm.machine.name}\n"),
            write(own / "network", network),
            write(own / "mounts", mounts),
        ]
    )


def make_disks(vm: Vm) -> None:
    """Make the machine's own layer over the image's disk, an empty state disk, and the firmware's variables."""
    disk, state, variables = vm.home / "disk.qcow2", vm.home / "state.qcow2", vm.home / "variables.fd"
    if not disk.exists():
        run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(vm.image.disk), "-F", "raw", str(disk))
    if not state.exists():
        run("qemu-img", "create", "-q", "-f", "qcow2", str(state), f"{vm.hardware.state_disk_mebibytes}M")
    if not variables.exists():
        shutil.copy(FIRMWARE / "OVMF_VARS_4M.fd", variables)


def put_command_line(vm: Vm) -> bool:
    """Write the system partition with the wanted command line, unless the disk has it; the machine is off meanwhile."""
    note, wanted = vm.home / "command-line", vm.hardware.command_line
    if (note.read_text() if note.exists() else "") == wanted:
        return False
    with TemporaryDirectory(prefix=".esp-", dir=vm.home) as scratch:
        partition = Path(scratch) / "esp.img"
        make_system_partition(vm.image.parts, partition, command_line=wanted)
        size = partition.stat().st_size
        run("qemu-io", "-f", "qcow2", "-c", f"write -q -s {partition} 1M {size}", str(vm.home / "disk.qcow2"))
    return write(note, wanted)


def bridge(lab: Lab) -> str:
    """Return the bridge of the lab's containers; made here if no container has brought it up yet."""
    name = str(json.loads((lab.root / "networks" / f"{lab.name}.json").read_text())["network_interface"])
    if inside(lab, "ip", "link", "show", "dev", name, check=False) == "":
        inside(lab, "ip", "link", "add", name, "type", "bridge")
        inside(lab, "ip", "address", "add", f"{GATEWAY}/{PREFIX}", "dev", name)
        inside(lab, "ip", "link", "set", name, "up")
    return name


def inside(lab: Lab, *argv: str, check: bool = True) -> str:
    """Run a command in the lab's network namespace."""
    return run("nsenter", f"--net={lab.namespace}", *argv, check=check)


def plug_in(vm: Vm) -> None:
    """Put the machine's end on the bridge."""
    unplug(vm)
    inside(vm.lab, "ip", "tuntap", "add", "dev", vm.tap, "mode", "tap")
    inside(vm.lab, "ip", "link", "set", vm.tap, "master", bridge(vm.lab), "up")


def unplug(vm: Vm) -> None:
    """Take the machine's end away, if there is one."""
    inside(vm.lab, "ip", "link", "delete", vm.tap, check=False)


def start_tpm(vm: Vm) -> None:
    """Start the machine's TPM; it ends when the machine lets go of it, and each start of a machine resets it."""
    stop_tpm(vm.home)
    sockets = vm.home / "tpm"
    if len(str(sockets / "control")) > SOCKET_PATH_LIMIT:
        raise LabError(f"expected at most {SOCKET_PATH_LIMIT} bytes of path for a TPM's socket, got {sockets}/control")
    shutil.rmtree(sockets, ignore_errors=True)
    sockets.mkdir(mode=0o700)
    run(
        "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={vm.home / 'tpm-state'}",
        "--ctrl", f"type=unixio,path={sockets / 'control'}", "--terminate",
        "--daemon", "--pid", f"file={vm.home / 'tpm.pid'}", "--log", f"level=1,file={vm.home / 'tpm.log'}",
    )  # fmt: skip


def words(vm: Vm) -> list[str]:
    """Return QEMU's command line: a pinned place for each device, and nothing that is not named here."""
    home, hardware = vm.home, vm.hardware
    firmware, board = (SECURE_FIRMWARE, SECURE_BOARD) if hardware.secure_boot else ("OVMF_CODE_4M.fd", ("q35",))
    return [
        "qemu-system-x86_64", "-name", vm.machine.name, "-machine", *board, *ACCELERATION[hardware.acceleration],
        "-smp", str(hardware.processors), "-m", str(hardware.memory_mebibytes),
        "-display", "none", "-nodefaults", "-no-user-config", "-rtc", "base=utc",
        "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE / firmware}",
        "-drive", f"if=pflash,format=raw,unit=1,file={home / 'variables.fd'}",
        *drive("root", home / "disk.qcow2", "0x4", boot=True), *drive("state", home / "state.qcow2", "0x5"),
        "-netdev", f"tap,id=segment,ifname={vm.tap},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=segment,mac={hardware_address(vm.machine)},addr=0x3,romfile=",
        "-device", "virtio-rng-pci,addr=0x6",
        *share("node", home / "node", 0x8), *share("machine", home / "machine", 0x9),
        *(word for n, (tag, (source, _path)) in enumerate(vm.shares.items()) for word in share(tag, source, 0xA + n)),
        "-chardev", f"file,id=console,path={home / 'console.log'},append=on", "-serial", "chardev:console",
        "-qmp", f"unix:{home / 'tpm' / 'monitor'},server=on,wait=off",
        "-chardev", f"socket,id=tpm,path={home / 'tpm' / 'control'}",
        "-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm",
        "-pidfile", str(vm.pid_file), "-daemonize",
    ]  # fmt: skip


def drive(name: str, path: Path, address: str, *, boot: bool = False) -> list[str]:
    """Return the words for one disk, which the machine finds as ``/dev/disk/by-id/virtio-NAME``."""
    device = f"virtio-blk-pci,drive={name},serial={name},addr={address}" + (",bootindex=1" if boot else "")
    options = "format=qcow2,cache=unsafe,discard=unmap"
    return ["-drive", f"if=none,id={name},file={path},{options}", "-device", device]


def share(tag: str, path: Path, slot: int) -> list[str]:
    """Return the words for one directory of this host."""
    device = f"virtio-9p-pci,fsdev={tag},mount_tag={tag},addr={slot:#x}"
    return ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly=on", "-device", device]


def monitor(vm: Vm, command: str) -> None:
    """Give QEMU one command."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(END_SECONDS)
        link.connect(str(vm.home / "tpm" / "monitor"))
        answers = link.makefile("r")
        answers.readline()  # its greeting
        for name in ("qmp_capabilities", command):
            link.sendall(json.dumps({"execute": name}).encode())
            answers.readline()


def lives(pid: int) -> bool:
    """Tell whether a process may still have files open; one that only waits to be counted has none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"X", "Z"}


def ended(pid: int, seconds: float) -> bool:
    """Wait for a process to end; False if it has not."""
    deadline = time.monotonic() + seconds
    while lives(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def shut_down(vm: Vm) -> bool:
    """Press the power button and wait; True if the machine was on. One that does not react is cut."""
    pid = runs(vm.pid_file, vm.home)
    if not pid:
        return False
    try:
        monitor(vm, "system_powerdown")
        ended(pid, POWER_OFF_SECONDS)
    except OSError:
        pass  # it does not even listen
    cut(vm)
    return True


def cut(vm: Vm) -> bool:
    """Take the power away, in the middle of whatever the machine does; True if it was on."""
    pid = runs(vm.pid_file, vm.home)
    if not pid:
        return False
    os.kill(pid, signal.SIGKILL)
    ended(pid, END_SECONDS)
    return True


def ensure(vm: Vm, *, restart: bool = False) -> bool:
    """Bring one machine up, or down and up; True if anything was done."""
    make_tpm(vm.lab, vm.machine)
    label = hashlib.sha256(json.dumps([words(vm), vm.hardware.command_line]).encode()).hexdigest()
    note = vm.home / "started-as"
    same = note.exists() and note.read_text() == label
    if runs(vm.pid_file, vm.home) and same and not restart:
        return False
    shut_down(vm)
    make_disks(vm)
    put_command_line(vm)
    start_tpm(vm)
    plug_in(vm)
    inside(vm.lab, *words(vm))
    write(note, label)
    wait_until_running(vm)
    return True


def wait_until_running(vm: Vm) -> None:
    """Wait until systemd has started every unit; a failed unit or no answer at all is an error with its reason."""
    deadline = time.monotonic() + RUNNING_SECONDS
    while True:
        state = said_by(vm, "systemctl is-system-running --wait")
        if state == "running":
            return
        if state == "degraded":
            failed = said_by(vm, "systemctl --failed --no-legend --plain")
            raise LabError(f"expected {vm.machine.name} to be running, got failed units: {failed}")
        if time.monotonic() > deadline or not runs(vm.pid_file, vm.home):
            log = (vm.home / "console.log").read_bytes()[-1000:].decode(errors="replace")
            raise LabError(f"expected {vm.machine.name} to be running, got {state or 'no answer'}: {log}")
        time.sleep(1)


def said_by(vm: Vm, command: str) -> str:
    """Return what a command prints on the machine; empty where it does not answer."""
    options = ("-o", f"HostName={vm.machine.address}", "-o", "ConnectTimeout=10", "-o", "BatchMode=yes")
    config = str(vm.lab.root / "ssh" / "config")
    return inside(vm.lab, "ssh", "-F", config, *options, vm.machine.name, command, check=False).strip()


def describe(lab: Lab, wanted: list[Machine]) -> list[str]:
    """Write what the machines read of themselves, and who is who; start nothing; return the names of what differed."""
    vms = [Vm.of(lab, machine) for machine in wanted]
    changed = [vm.machine.name for vm in vms if write_machine(lab, vm.machine) | write_shares(vm)]
    return changed + (["names"] if write_names(lab, all_machines(lab)) else [])


def start(lab: Lab, wanted: list[Machine], *, restart: bool = False) -> list[str]:
    """Start the machines side by side; return the names of those that were changed."""
    vms = [Vm.of(lab, machine) for machine in wanted]
    for path in {vm.image.path for vm in vms if not vm.image.path.exists()}:
        raise LabError(f"expected the image of virtual machines in {path}, got none: run vm_image.py first")
    changed = describe(lab, wanted)
    authorities = [machine.authority for machine in wanted]
    write_authorities(lab, authorities)
    bridge(lab)
    with ThreadPoolExecutor(max_workers=2) as pool:
        started = list(pool.map(lambda vm: ensure(vm, restart=restart), vms))
    write_certificates(lab, authorities)
    names = [vm.machine.name for vm in vms]
    return [name for name, fresh in zip(names, started, strict=True) if fresh or name in changed] or changed


def remove(vm: Vm) -> bool:
    """Take one machine away with its TPM and disks; True if it was there."""
    if not vm.home.exists():
        return False
    cut(vm)
    stop_tpm(vm.home)
    unplug(vm)
    shutil.rmtree(vm.home)
    write_names(vm.lab, all_machines(vm.lab))
    return True


def scrap_tpm(vm: Vm) -> None:
    """Take a machine's TPM away for good, as with its mainboard; its disks stay."""
    shut_down(vm)
    stop_tpm(vm.home)
    shutil.rmtree(vm.home / "tpm-state", ignore_errors=True)


# what is done to single machines that are off, or gone, afterwards
ENDINGS: dict[str, Callable[[Vm], bool]] = {"cut": cut, "off": shut_down, "remove": remove}


def work(lab: Lab, command: str) -> dict[str, Any]:
    """Describe, start, restart, stop or remove what standard input names, or start it with another TPM."""
    machines = [Machine(**entry) for entry in json.load(sys.stdin)]
    if command == "describe":
        described = describe(lab, machines)
        return {"changed": bool(described), "machines": described}
    vms = [Vm.of(lab, machine) for machine in machines]
    if command in ENDINGS:
        done = [vm.machine.name for vm in vms if ENDINGS[command](vm)]
        return {"changed": bool(done), "machines": done}
    for vm in vms if command == "renew" else ():
        scrap_tpm(vm)
    changed = start(lab, machines, restart=command in {"renew", "restart"})
    return {"changed": bool(changed), "machines": changed}


if __name__ == "__main__":
    program(work, ("cut", "describe", "ensure", "off", "remove", "renew", "restart"))
