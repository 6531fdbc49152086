# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with the output of all its playbooks, and commands on its machines."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from ansible_collections.attested.kubernetes.tests.support import find_needles
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab, obstacles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLAYBOOK_SECONDS = 5400.0
LOCK_REGISTER = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One playbook run with -vvvv: output and exit code."""

    name: str
    returncode: int
    output: str

    def complaint(self) -> str:
        """Return the last failed task and its message."""
        before, found, after = self.output.rpartition("\nfatal: ")
        if not found:
            return self.output[-400:].strip()
        told = [line.partition('"msg":')[2] or line.partition('"stderr":')[2] for line in after.splitlines()]
        task = before.rpartition("\nTASK [")[2].partition("]")[0]
        return f"{task}: {' '.join(filter(None, told)) or after[:400]}"

    def changes(self) -> dict[str, int]:
        """Return the number of changes by host, from the recap."""
        recap = self.output.rpartition("PLAY RECAP")[2].splitlines()
        rows = [line.partition(":") for line in recap if "changed=" in line]
        return {host.strip(): int(rest.partition("changed=")[2].split()[0]) for host, _colon, rest in rows}


@dataclass(slots=True, kw_only=True)
class Road:
    """The lab with all runs and observed processes; ``plane``: the control plane for kubectl."""

    PAUSE: ClassVar[float] = 1.0
    """Seconds between two looks at a Node."""

    lab: Lab
    watch: ProcessWatch
    began: float
    runs: list[Run] = field(default_factory=list)
    plane: str = "cp-1"

    @property
    def site(self) -> Path:
        """The site directory of the lab."""
        return self.lab.directory / "site"

    def start(
        self, playbook: str, *words: str, where: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a playbook with -vvvv and additional environment variables."""
        own = {"lab_name": self.lab.name, "lab_directory": str(self.lab.directory), "lab_loopback": self.lab.loopback}
        program = Path(sys.executable).parent / "ansible-playbook"
        env = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0", **(environment or {})}
        name = playbook if playbook.endswith(".yml") else f"attested.kubernetes.{playbook}"
        argv = [str(program), "-vvvv", name, "-e", json.dumps(own), *words]
        return subprocess.Popen(
            argv,
            cwd=where or self.site,
            env=env,
            stdin=subprocess.DEVNULL,  # Ansible refuses one that another process made non-blocking
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, playbook: str, process: subprocess.Popen[str]) -> Run:
        """Wait for a playbook and keep its output; a playbook that hangs is ended."""
        try:
            output, _none = process.communicate(timeout=PLAYBOOK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        run = Run(name=playbook, returncode=process.returncode, output=output)
        self.runs.append(run)
        return run

    def play(self, playbook: str, *words: str, where: Path | None = None) -> Run:
        """Run a playbook that must succeed."""
        run = self.finish(playbook, self.start(playbook, *words, where=where))
        assert run.returncode == 0, f"{playbook}: {run.complaint()}\n{run.output[-8000:]}"
        return run

    def inside(self, machine: str, *argv: str, given: bytes = b"", check: bool = True) -> str:
        """Run a command as root on a machine and return its output."""
        words = [str(self.lab.directory / "podman"), "exec", "-i", machine, *argv]
        done = subprocess.run(words, input=given, capture_output=True, check=False)
        assert done.returncode == 0 or not check, f"{argv}: {done.stderr.decode()}"
        return done.stdout.decode(errors="replace")

    def kubectl(self, *words: str, asked: str = "", given: bytes = b"") -> str:
        """Run kubectl on a control plane."""
        return self.inside(
            asked or self.plane, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", *words, given=given
        )

    def look_inside(self, machine: str, needles: dict[str, list[bytes]], skip: list[str]) -> list[dict[str, str]]:
        """Return the places of the needles on a machine."""
        spelled = {name: [one.hex() for one in many] for name, many in needles.items()}
        asked = {"needles": spelled, "since": self.began, "skip": skip}
        program = Path(find_needles.__file__).read_text()
        found = self.inside(machine, "python3", "-c", program, given=json.dumps(asked).encode())
        result: list[dict[str, str]] = json.loads(found)
        return result

    def wait_until_ready(self, machine: str, *, boot_id: str, seconds: float = 900, asked: str = "") -> None:
        """Wait until the Node of a machine is ready in the boot with this id, by the control plane ``asked``."""
        template = "{.status.nodeInfo.bootID} {.status.conditions[?(@.type=='Ready')].status}"
        asked = asked or self.plane
        kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
        deadline = time.monotonic() + seconds
        seen = ""
        while time.monotonic() < deadline:
            seen = self.inside(
                asked, *kubectl, "get", "node", machine, f"--output=jsonpath={template}", check=False
            )  # fmt: skip
            if seen == f"{boot_id} True":
                return
            if seen.startswith(boot_id):  # it is there and will be ready: told as soon as it is
                self.inside(asked, *kubectl, "wait", f"node/{machine}", "--for=condition=Ready", check=False)
            time.sleep(self.PAUSE)
        raise TimeoutError(f"expected the Node of {machine} to be ready in boot {boot_id}, got {seen!r}")

    def reboot(self, machine: str) -> str:
        """Reboot a machine and return the id of its new boot."""
        before = self.boot_id(machine)
        self.lab.ssh(machine, "sudo systemctl reboot")
        return self.lab.wait_for_boot(machine, other_than=before, seconds=900)

    def boot_id(self, machine: str) -> str:
        """Return the id of the boot of a machine."""
        return self.inside(machine, "cat", "/proc/sys/kernel/random/boot_id").strip()


@contextmanager
def road_through(*playbooks: str, of: str, instead: str, words: tuple[str, ...] = ()) -> Iterator[Road]:
    """Create the lab NAME:LOOPBACK, run playbooks on it, and remove it at the end.

    Developer option: the variable `instead` names such a lab after these playbooks, which is used and kept.
    """
    if found := obstacles():
        pytest.skip(found)
    used = os.environ.get(instead)
    name, _colon, loopback = (used or of).partition(":")
    lab = Lab(name=name, directory=Path.home() / ".local" / "state" / name, loopback=loopback)
    with ProcessWatch() as watch:
        road = Road(lab=lab, watch=watch, began=time.time())
        try:
            if not used:
                road.play("lab_machines", *words, where=Path.home())
                for playbook in playbooks:
                    road.play(playbook, *words)
            yield road
        finally:
            if not used:
                lab.remove()


def assert_one_lock_event(road: Road, node: str) -> None:
    """The PCR of the lock has the measurements of systemd and one event of ours."""
    assert_lock_events(road, node, events=1)


def assert_lock_events(road: Road, node: str, *, events: int) -> None:
    """Replay systemd's log and ours without our code: the result is the register that tpm2-tools reads."""
    files = ("/srv/boot/userspace.json", "/run/attested/nodelock.log")
    systemd, ours = (records_of(road.inside(node, "cat", file)) for file in files)
    assert len(ours) == events
    value = bytes(32)
    for digest in (*systemd, *ours):
        value = hashlib.sha256(value + bytes.fromhex(digest)).digest()
    assert road.lab.registers(node)[LOCK_REGISTER] == value.hex().upper()


def records_of(log: str) -> list[str]:
    """Return the SHA-256 digests for the PCR of the lock in a log of systemd's format."""
    records = [json.loads(part) for part in log.split("\x1e") if part.strip()]
    return [
        entry["digest"]
        for record in records
        if record["pcr"] == LOCK_REGISTER
        for entry in record["digests"]
        if entry["hashAlg"] == "sha256"
    ]
