# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with everything that was run in it: playbooks as an admin runs them, and looks into its machines."""

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
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support import find_needles
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab, obstacles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLAYBOOK_SECONDS = 1800
LOCK_REGISTER = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One playbook that ran at -vvvv: what it printed, and how it ended."""

    name: str
    returncode: int
    output: str

    def complaint(self) -> str:
        """Return the last task that failed, and how: what a reader of one line wants to know first."""
        before, found, after = self.output.rpartition("\nfatal: ")
        if not found:
            return self.output[-400:].strip()
        told = [line.partition('"msg":')[2] or line.partition('"stderr":')[2] for line in after.splitlines()]
        task = before.rpartition("\nTASK [")[2].partition("]")[0]
        return f"{task}: {' '.join(filter(None, told)) or after[:400]}"

    def changes(self) -> dict[str, int]:
        """Return how much each host changed, out of the recap."""
        recap = self.output.rpartition("PLAY RECAP")[2].splitlines()
        rows = [line.partition(":") for line in recap if "changed=" in line]
        return {host.strip(): int(rest.partition("changed=")[2].split()[0]) for host, _colon, rest in rows}


@dataclass(slots=True, kw_only=True)
class Road:
    """The lab, everything that ran in it, and what was seen of processes meanwhile; ``plane`` is whom kubectl asks."""

    lab: Lab
    watch: ProcessWatch
    began: float
    runs: list[Run] = field(default_factory=list)
    plane: str = "cp-1"
    playbook_seconds: float = PLAYBOOK_SECONDS

    @property
    def site(self) -> Path:
        """The site directory of the lab."""
        return self.lab.directory / "site"

    def start(
        self, playbook: str, *words: str, where: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a playbook at -vvvv, with more variables of the environment."""
        own = {"lab_name": self.lab.name, "lab_directory": str(self.lab.directory), "lab_loopback": self.lab.loopback}
        program = Path(sys.executable).parent / "ansible-playbook"
        env = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0", **(environment or {})}
        name = playbook if playbook.endswith(".yml") else f"attested.kubernetes.{playbook}"
        argv = [str(program), "-vvvv", name, "-e", json.dumps(own), *words]
        return subprocess.Popen(
            argv, cwd=where or self.site, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self, playbook: str, process: subprocess.Popen[str]) -> Run:
        """Wait for a playbook and keep what it printed."""
        output, _none = process.communicate(timeout=self.playbook_seconds)
        run = Run(name=playbook, returncode=process.returncode, output=output)
        self.runs.append(run)
        return run

    def play(self, playbook: str, *words: str, where: Path | None = None) -> Run:
        """Run a playbook that has to succeed."""
        run = self.finish(playbook, self.start(playbook, *words, where=where))
        assert run.returncode == 0, f"{playbook}: {run.complaint()}\n{run.output[-8000:]}"
        return run

    def inside(self, machine: str, *argv: str, given: bytes = b"", check: bool = True) -> str:
        """Run a command as root in a machine and return what it printed."""
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
        """Return where in a machine the needles are."""
        spelled = {name: [one.hex() for one in many] for name, many in needles.items()}
        asked = {"needles": spelled, "since": self.began, "skip": skip}
        program = Path(find_needles.__file__).read_text()
        found = self.inside(machine, "python3", "-c", program, given=json.dumps(asked).encode())
        result: list[dict[str, str]] = json.loads(found)
        return result

    def wait_until_ready(self, machine: str, *, boot_id: str, seconds: float = 300, asked: str = "") -> None:
        """Wait until the Node of a machine is ready in the boot with this id, as the control plane ``asked`` says."""
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
            time.sleep(1)
        raise TimeoutError(f"expected the Node of {machine} to be ready in boot {boot_id}, got {seen!r}")

    def reboot(self, machine: str) -> str:
        """Reboot a machine and return the id of its new boot."""
        before = self.boot_id(machine)
        self.lab.ssh(machine, "sudo systemctl reboot")
        return self.lab.wait_for_boot(machine, other_than=before, seconds=300)

    def boot_id(self, machine: str) -> str:
        """Return the id of the boot of a machine."""
        return self.inside(machine, "cat", "/proc/sys/kernel/random/boot_id").strip()


@contextmanager
def road_through(*playbooks: str, of: str, instead: str, words: tuple[str, ...] = ()) -> Iterator[Road]:
    """Make the lab NAME:LOOPBACK, take it through playbooks, and remove it at the end.

    A developer who has such a lab that has been through them names it in the variable `instead`: it is used and left.
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
                lab.play("lab_down")


def assert_one_lock_event(road: Road, node: str) -> None:
    """The register of the lock holds what systemd measured and one event of ours."""
    assert_lock_events(road, node, events=1)


def assert_lock_events(road: Road, node: str, *, events: int) -> None:
    """Replay systemd's log and ours with nothing of our code: the register that tpm2-tools reads is just that."""
    files = ("/srv/boot/userspace.json", "/run/attested/nodelock.log")
    systemd, ours = (records_of(road.inside(node, "cat", file)) for file in files)
    assert len(ours) == events
    value = bytes(32)
    for digest in (*systemd, *ours):
        value = hashlib.sha256(value + bytes.fromhex(digest)).digest()
    assert road.lab.registers(node)[LOCK_REGISTER] == value.hex().upper()


def records_of(log: str) -> list[str]:
    """Return the SHA-256 digests that a log of systemd's form has for the register of the lock."""
    records = [json.loads(part) for part in log.split("\x1e") if part.strip()]
    return [
        entry["digest"]
        for record in records
        if record["pcr"] == LOCK_REGISTER
        for entry in record["digests"]
        if entry["hashAlg"] == "sha256"
    ]
