# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A single virtual machine of the lab without containers, and a lab road that also accesses virtual machines.

These machines are fully emulated on any host; no test fails because it is slow.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE, Lab, obstacles
from ansible_collections.attested.kubernetes.tests.support.road import LOCK_REGISTER, Road, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

VM = "vw-1"
ADDRESS = "10.89.7.51"
STATE_DISK = "/dev/disk/by-id/virtio-state"
COMMAND_LINE = "root=LABEL=root rw console=ttyS0 net.ifnames=0 quiet"
CHANGED_COMMAND_LINE = f"{COMMAND_LINE} mitigations=off"
PROGRAMS = ROLE / "files" / "host"
NAMESPACES = Path("/run/netns")
VIRTUAL = ("vc-", "vw-")
"""The prefix of the lab's virtual machines."""

SECONDS, RARELY = 2400.0, 10.0
"""For what an emulated machine does; and between two looks at one, each of which is a login and costs it seconds."""

DISK = {
    "attested_state_disk": STATE_DISK,
    "attested_state_disk_minimum_bytes": 256 << 20,
    "attested_recovery_after_seconds": 20,
}
UNIT, DOOR = "attested-bootstrapper.service", "attested-recovery-service.service"
KUBELET = "/var/lib/kubelet"


def lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    file = Path(f"/proc/{pid}/stat")
    return file.exists() and file.read_text().rpartition(")")[2].split()[0] not in {"X", "Z"}


def registers(text: str) -> dict[int, str]:
    """Parse the registers in the output of tpm2_pcrread or tpm2_eventlog, upper case hex."""
    return {int(index): value.upper() for index, value in re.findall(r"(\d+)\s*: 0x([0-9A-Fa-f]{64})", text)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneMachine:
    """One virtual machine of a suite of Debian in a network namespace, with the programs of the role."""

    name: str
    root: Path
    cache: Path
    suite: str = "bookworm"

    def do(self, command: str, *, program: str = "vms.py", **hardware: Any) -> dict[str, Any]:
        """Run a program of the role for the machine; return its output."""
        machine = {"name": VM, "address": ADDRESS, "forward": "127.97.0.51", "hardware": hardware, "suite": self.suite}
        where = ("--name", self.name, "--loopback", "127.97.0", "--lab", str(self.root), "--cache", str(self.cache))
        argv = [sys.executable, "-B", str(PROGRAMS / program), command, *where]
        given = json.dumps([self.suite] if program == "vm_image.py" else [machine])
        done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def inside(self, script: str, *, check: bool = True) -> str:
        """Run a shell script as root on the machine and return its output."""
        options = ("-o", f"HostName={ADDRESS}", "-o", "ConnectTimeout=30")
        enter = ("nsenter", f"--net={NAMESPACES / self.name}")
        argv = [*enter, "ssh", "-F", str(self.root / "ssh" / "config"), *options, VM, "sudo", "sh", "-eu"]
        done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0 or not check, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def copy(self, *files: Path) -> None:
        """Copy files to /var/tmp of the machine."""
        options = ("-F", str(self.root / "ssh" / "config"), "-o", f"HostName={ADDRESS}", "-o", "ConnectTimeout=30")
        argv = [
            "nsenter",
            f"--net={NAMESPACES / self.name}",
            "scp",
            "-q",
            *options,
            *map(str, files),
            f"{VM}:/var/tmp/",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, done.stderr

    def registers(self) -> dict[int, str]:
        """Read the registers with tpm2-tools and the kernel's device."""
        return registers(self.inside("tpm2_pcrread -T device:/dev/tpmrm0 sha256"))

    def boot_id(self) -> str:
        """Return the id of its boot."""
        return self.inside("cat /proc/sys/kernel/random/boot_id").strip()

    def processes(self) -> list[int]:
        """Return the processes of the machine."""
        files = (self.root / "machines" / VM / name for name in ("vm.pid", "tpm.pid"))
        return [int(file.read_text()) for file in files if file.exists()]


@contextmanager
def lone_machine(name: str, root: Path, suite: str = "bookworm") -> Iterator[LoneMachine]:
    """Create the namespace, and remove it with its content at the end."""
    cache = Path(os.environ.get("ATTESTED_CACHE") or Path.home() / ".cache" / "attested-kubernetes")
    machine = LoneMachine(name=name, root=root, cache=cache, suite=suite)
    (root / "networks").mkdir(parents=True)
    (root / "networks" / f"{name}.json").write_text(json.dumps({"network_interface": "lone"}))
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        machine.do("ensure", program="vm_image.py")
        yield machine
    finally:
        machine.do("remove")
        subprocess.run(["ip", "netns", "delete", name], check=True)


class HybridRoad(Road):
    """A road of a lab with virtual machines, and optional containers."""

    __slots__ = ()
    PAUSE = RARELY

    def inside(self, machine: str, *argv: str, given: bytes = b"", check: bool = True) -> str:
        """Run a command as root on a machine, by podman or ssh, and return its output."""
        if not machine.startswith(VIRTUAL):
            return Road.inside(self, machine, *argv, given=given, check=check)
        words = ["ssh", "-F", str(self.lab.directory / "ssh" / "config"), "-o", "ConnectTimeout=30", machine]
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)
        argv_there = [*words, f"sudo {quoted}"]
        done = subprocess.run(argv_there, input=given, capture_output=True, check=False, timeout=900)
        assert done.returncode == 0 or not check, f"{argv}: {done.stderr.decode()}"
        return done.stdout.decode(errors="replace")

    def power(self, machine: str, *words: str) -> None:
        """Run the playbook `lab_machine` on a virtual machine."""
        self.play("lab_machine", "-e", f"machine={machine}", *words)

    def reboot(self, machine: str) -> str:
        """Reboot a machine and return the id of its new boot; slow firmware is no error."""
        before = self.boot_id(machine)
        self.lab.ssh(machine, "sudo systemctl reboot")
        return self.lab.wait_for_boot(machine, other_than=before, seconds=SECONDS)

    def joined(self, machine: str) -> str:
        """Wait until a machine is Ready in its present boot; return that boot's id."""
        boot = self.boot_id(machine)
        try:
            self.wait_until_ready(machine, boot_id=boot, seconds=SECONDS)
        except TimeoutError as error:
            raise AssertionError(self.journal(machine)[-6000:]) from error
        return boot

    def journal(self, machine: str, unit: str = UNIT) -> str:
        """Return the log of a unit in this boot."""
        return self.inside(machine, "journalctl", "--boot", f"--unit={unit}", "--output=cat", check=False)

    def is_active(self, machine: str, unit: str) -> bool:
        """Return whether a unit is active; False for a machine that does not answer."""
        return self.inside(machine, "systemctl", "is-active", unit, check=False).strip() == "active"

    def volume(self, machine: str, directory: str = KUBELET) -> dict[str, str]:
        """Return the `cryptsetup status` of a directory's volume; empty without a mapped device."""
        words = ("--noheadings", "--nofsroot", "--output=SOURCE", f"--target={directory}")
        found = self.inside(machine, "findmnt", *words, check=False).split()
        if not found or not found[0].startswith("/dev/mapper/"):
            return {}
        status = self.inside(machine, "cryptsetup", "status", found[0])
        lines = (line.partition(":") for line in status.splitlines()[1:])
        return {key.strip(): value.strip() for key, _colon, value in lines}

    def put_marker(self, machine: str, text: str) -> None:
        """Write a text to the volume, to identify the volume."""
        self.inside(machine, "sh", "-c", f"echo {text} > {KUBELET}/marker && sync {KUBELET}/marker")

    def marker(self, machine: str) -> str:
        """Return the written text."""
        return self.inside(machine, "cat", f"{KUBELET}/marker").strip()


@contextmanager
def hybrid_road(
    *playbooks: str, of: str, instead: str, words: tuple[str, ...], disks: tuple[str, ...], plane: str = "cp-1"
) -> Iterator[HybridRoad]:
    """Create the lab NAME:LOOPBACK, give these machines ``disks``, run playbooks on it, and remove it at the end.

    Developer option: the variable `instead` names such a lab after these playbooks, which is used and kept.
    """
    if found := obstacles(virtual_machines=True):
        pytest.skip(found)
    used = os.environ.get(instead)
    name, _colon, loopback = (used or of).partition(":")
    lab = Lab(name=name, directory=Path.home() / ".local" / "state" / name, loopback=loopback)
    with ProcessWatch() as watch:
        road = HybridRoad(lab=lab, watch=watch, began=time.time(), plane=plane)
        try:
            if not used:
                road.play("lab_machines", *words, where=Path.home())
                put_disks_into_site(road.site, disks)
                for playbook in playbooks:
                    road.play(playbook, *words)
            yield road
        finally:
            if not used:
                lab.remove()


def put_disks_into_site(site: Path, machines: tuple[str, ...]) -> None:
    """Write to the site that each of the machines has a state disk, like an admin with an editor."""
    for machine in machines:
        settings = site / "host_vars" / machine / "state_disk.yml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(DISK) + "\n")


def assert_on_its_disk(road: HybridRoad, machine: str, *directories: str) -> None:
    """Each directory, by default the kubelet's, is on an encrypted volume with integrity on the named disk."""
    disk = road.inside(machine, "readlink", "--canonicalize", STATE_DISK).strip()
    for directory in directories or (KUBELET,):
        found = road.volume(machine, directory)
        assert found.get("type") == "LUKS2", (directory, found)
        assert "hmac(sha256)" in found["integrity"], directory
        assert found["device"] == disk, directory
        kind = ("--noheadings", "--output=FSTYPE", f"--target={directory}")
        assert road.inside(machine, "findmnt", *kind).strip() == "ext4", directory


def assert_locked_once(road: HybridRoad, machine: str) -> None:
    """The PCR of the lock has the measurements of systemd (none in Debian 12) and one event of ours."""
    systemd = records_of(road.inside(machine, "cat", "/run/log/systemd/tpm2-measure.log", check=False))
    events = records_of(road.inside(machine, "cat", "/run/attested/nodelock.log"))
    value = bytes(32)
    for digest in (*systemd, *events):
        value = hashlib.sha256(value + bytes.fromhex(digest)).digest()
    read = registers(road.inside(machine, "tpm2_pcrread", "-T", "device:/dev/tpmrm0", f"sha256:{LOCK_REGISTER}"))
    assert len(events) == 1
    assert read[LOCK_REGISTER] == value.hex().upper()


def run_a_pod(road: HybridRoad, machine: str, name: str) -> str:
    """Run a Pod on a machine; return the kernel version in it."""
    container = {
        "name": "one",
        "image": "localhost/attested-tour:1",
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sh", "-c", "uname -r && exec sleep 1000000"],
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": machine},
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    road.kubectl("apply", "-f", "-", given=json.dumps(pod).encode())
    road.kubectl("wait", "--for=condition=Ready", "--timeout=600s", f"pod/{name}")
    return road.kubectl("logs", name)


def disk_condition(road: HybridRoad, machine: str) -> str:
    """Return the Node's condition of its state disk: True after changed sectors, empty without condition."""
    path = '{.status.conditions[?(@.type=="StateDiskCorrupt")].status}'
    return road.kubectl("get", "node", machine, f"--output=jsonpath={path}")


def row_of(told: str, machine: str) -> str:
    """Return a machine's row in the last table of a recovery, after name and role; empty without a row."""
    rows: list[str] = re.findall(rf"^\s*{machine}\s+(?:control-plane|worker)\s+(.*)$", told, re.MULTILINE)
    return rows[-1] if rows else ""
