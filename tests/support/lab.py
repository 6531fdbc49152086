# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab for one test: machines with TPMs on this host, beside other labs, and a check for leftovers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "lab"
BOOTS = ROOT / "tests" / "vectors" / "boots"
REGISTER = Path("/run/attested-labs")  # of the role: a file for each lab of this host
IMA_REGISTER = 10  # the log of the kernel, which no lab machine replays

# counters and random numbers, which always change
VOLATILE = (
    "kernel/random/",
    "kernel/ns_last_pid",
    "fs/dentry-state",
    "fs/binfmt_misc",
    "kernel/hung_task_detect_count",
)


def obstacles(*, virtual_machines: bool = False) -> str:
    """Return why no lab, or none with virtual machines, can run here; empty if one can."""
    more = ["--virtual-machines"] if virtual_machines else []
    look = [sys.executable, "-B", str(ROLE / "files" / "host" / "check.py"), *more]
    found = json.loads(subprocess.run(look, capture_output=True, check=True).stdout)
    return str(found["message"]) if found["packages"] or found["problems"] else ""


def recorded_registers(boot: str) -> dict[int, str]:
    """Return the PCR values of tpm2_pcrread on the recorded machine, upper case hex."""
    return registers((BOOTS / boot / "pcrs.txt").read_text())


def registers(text: str) -> dict[int, str]:
    """Parse the output of tpm2_pcrread, without the register that is not replayed."""
    found = {int(index): value for index, value in re.findall(r"(\d+)\s*: 0x([0-9A-F]{64})", text)}
    return {index: value for index, value in found.items() if index != IMA_REGISTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab with its own name, directory and loopback addresses."""

    name: str
    directory: Path
    loopback: str
    variables: dict[str, Any] = field(default_factory=dict)

    def play(
        self, playbook: str | Path, *, inventory: Path | None = None, **variables: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a playbook of the collection, or of the test, on this lab."""
        own = {"lab_name": self.name, "lab_directory": str(self.directory), "lab_loopback": self.loopback}
        given = json.dumps({**own, **self.variables, **variables})
        name = str(playbook) if isinstance(playbook, Path) else f"attested.kubernetes.{playbook}"
        program = Path(sys.executable).parent / "ansible-playbook"
        plain = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_LOCALHOST_WARNING": "0"}
        env = {**os.environ, **plain, "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0"}
        chosen = ["-i", str(inventory)] if inventory else []
        return subprocess.run(
            [program, name, *chosen, "-e", given],
            env=env,
            stdin=subprocess.DEVNULL,  # Ansible refuses one that another process made non-blocking
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def remove(self) -> None:
        """Remove the lab at the end of its tests; a lab that stays would take the machine from the tests after it."""
        done = self.play("lab_down")
        assert done.returncode == 0, f"lab_down of {self.name}: {done.stdout[-4000:]}{done.stderr[-4000:]}"

    def ssh(self, machine: str, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine as its admin, through the forwarder; a timeout counts as no answer."""
        options = ("-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=30", "-o", "ServerAliveCountMax=4")
        argv = ["ssh", "-F", str(self.directory / "ssh" / "config"), *options, machine, *words]
        try:
            return subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired as slow:
            return subprocess.CompletedProcess(argv, returncode=255, stdout="", stderr=str(slow))

    def tpm(self, machine: str, *words: str) -> bytes:
        """Run a program of tpm2-tools on the TPM of a machine."""
        socket = self.directory / "machines" / machine / "tpm" / "tpm"
        return subprocess.run([*words, "-T", f"swtpm:path={socket}"], capture_output=True, check=True).stdout

    def registers(self, machine: str) -> dict[int, str]:
        """Read the registers of a machine's TPM with tpm2-tools."""
        return registers(self.tpm(machine, "tpm2_pcrread", "sha256").decode())

    def wait_for_boot(self, machine: str, *, other_than: str, seconds: float = 60) -> str:
        """Wait until a machine has started all units of another boot; return the boot id.

        The machine itself waits for its units: a login for each look takes almost half of an emulated machine's time.
        """
        words = ("cat /proc/sys/kernel/random/boot_id; systemctl is-system-running --wait",)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            lines = self.ssh(machine, *words, seconds=max(left, 60)).stdout.split()
            is_new = bool(lines) and lines[0] != other_than
            if is_new and lines[-1] == "running":
                return lines[0]
            time.sleep(5 if is_new else 0.3)
        raise TimeoutError(f"expected {machine} to boot within {seconds} s")


def host_state(lab: Lab) -> dict[str, Any]:
    """Return possible leftovers of a lab on this host: settings, links, routes, mounts, containers, processes."""
    return {
        "settings": _settings(),
        "links": _json("ip", "-j", "link"),
        "addresses": [
            {"link": link["ifname"], "addresses": [entry["local"] for entry in link["addr_info"]]}
            for link in _json("ip", "-j", "addr")
        ],
        "routes": [_json("ip", "-j", family, "route", "show", "table", "all") for family in ("-4", "-6")],
        "rules": subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=False).stdout,
        "mounts": sorted(filter(_is_ours, Path("/proc/self/mounts").read_text().splitlines())),
        "groups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("**/") if lab.name in path.parts),
        "namespaces": sorted(path.name for path in Path("/run/netns").glob("*") if path.name == lab.name),
        "processes": _processes(str(lab.directory)),
        "left": [str(path) for path in (lab.directory, Path("/run") / lab.name) if path.exists()],
    }


def other_labs(lab: Lab) -> set[str]:
    """Return the other running labs of this host: the last lab restores the shared settings."""
    return {path.name for path in REGISTER.glob("*")} - {lab.name}


def _is_ours(mount: str) -> bool:
    """Leave out the mounts of other labs and their machines, which may change meanwhile."""
    point = mount.split()[1]
    return not point.startswith(("/run/netns/", str(Path.home() / ".local" / "state")))


def _json(*argv: str) -> Any:
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return [{k: v for k, v in entry.items() if k != "valid_life_time"} for entry in json.loads(text or "[]")]


def _settings() -> dict[str, str]:
    found = {}
    root = Path("/proc/sys")
    for file in root.rglob("*"):
        name = str(file.relative_to(root))
        if not name.startswith(VOLATILE) and file.is_file() and file.stat().st_mode & 0o200:
            try:
                found[name] = file.read_text(errors="replace")
            except OSError:
                continue  # write-only, or removed meanwhile
    return found


def _processes(directory: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # the process has ended
        if directory in words and "ansible" not in words:
            found.append(words)
    return found
