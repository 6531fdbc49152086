# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine of the lab alone, without containers, and a lab's road that also leads into virtual machines."""

from __future__ import annotations

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

from ansible_collections.attested.kubernetes.tests.support.lab import ROLE
from ansible_collections.attested.kubernetes.tests.support.road import Road

if TYPE_CHECKING:
    from collections.abc import Iterator

VM = "vw-1"
ADDRESS = "10.89.7.51"
STATE_DISK = "/dev/disk/by-id/virtio-state"
COMMAND_LINE = "root=LABEL=root rw console=ttyS0 net.ifnames=0 quiet"
CHANGED_COMMAND_LINE = f"{COMMAND_LINE} mitigations=off"
PROGRAMS = ROLE / "files" / "host"
NAMESPACES = Path("/run/netns")


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    file = Path(f"/proc/{pid}/stat")
    return file.exists() and file.read_text().rpartition(")")[2].split()[0] not in {"X", "Z"}


def registers(text: str) -> dict[int, str]:
    """Read the registers out of what tpm2_pcrread or tpm2_eventlog prints, upper case hex."""
    return {int(index): value.upper() for index, value in re.findall(r"(\d+)\s*: 0x([0-9A-Fa-f]{64})", text)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneMachine:
    """One virtual machine in a network namespace of its own, by the programs that the role starts."""

    name: str
    root: Path
    cache: Path

    def do(self, command: str, *, program: str = "vms.py", **hardware: Any) -> dict[str, Any]:
        """Have a program of the role do something with the machine; return what it prints."""
        machine = {"name": VM, "address": ADDRESS, "forward": "127.99.0.51", "hardware": hardware}
        where = ("--name", self.name, "--loopback", "127.99.0", "--lab", str(self.root), "--cache", str(self.cache))
        argv = [sys.executable, "-B", str(PROGRAMS / program), command, *where]
        given = json.dumps([machine])
        done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def inside(self, script: str, *, check: bool = True) -> str:
        """Run a shell script as root on the machine and return what it printed."""
        options = ("-o", f"HostName={ADDRESS}", "-o", "ConnectTimeout=30")
        enter = ("nsenter", f"--net={NAMESPACES / self.name}")
        argv = [*enter, "ssh", "-F", str(self.root / "ssh" / "config"), *options, VM, "sudo", "sh", "-eu"]
        done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0 or not check, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def registers(self) -> dict[int, str]:
        """Read the registers with tpm2-tools by the kernel's own device."""
        return registers(self.inside("tpm2_pcrread -T device:/dev/tpmrm0 sha256"))

    def boot_id(self) -> str:
        """Return the id of its boot."""
        return self.inside("cat /proc/sys/kernel/random/boot_id").strip()

    def processes(self) -> list[int]:
        """Return the processes that live for the machine."""
        files = (self.root / "machines" / VM / name for name in ("vm.pid", "tpm.pid"))
        return [int(file.read_text()) for file in files if file.exists()]


@contextmanager
def lone_machine(name: str, root: Path) -> Iterator[LoneMachine]:
    """Make the namespace, and take it and everything in it away at the end."""
    cache = Path(os.environ.get("ATTESTED_CACHE") or Path.home() / ".cache" / "attested-kubernetes")
    machine = LoneMachine(name=name, root=root, cache=cache)
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
    """A road of a lab with both kinds of machines."""

    __slots__ = ()

    def inside(self, machine: str, *argv: str, given: bytes = b"", check: bool = True) -> str:
        """Run a command as root in a machine, by podman or by ssh, and return what it printed."""
        if machine != VM:
            return Road.inside(self, machine, *argv, given=given, check=check)
        words = ["ssh", "-F", str(self.lab.directory / "ssh" / "config"), "-o", "ConnectTimeout=30", machine]
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)
        argv_there = [*words, f"sudo {quoted}"]
        done = subprocess.run(argv_there, input=given, capture_output=True, check=False, timeout=900)
        assert done.returncode == 0 or not check, f"{argv}: {done.stderr.decode()}"
        return done.stdout.decode(errors="replace")

    def power(self, *words: str) -> float:
        """Run the playbook `lab_machine` on the virtual machine; return how long it took."""
        began = time.monotonic()
        self.play("lab_machine", "-e", f"machine={VM}", *words)
        return time.monotonic() - began
