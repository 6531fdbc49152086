# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the programs of the lab's host side share: where things are, commands, podman, and the record of changes.

The lab has a container store of its own below the lab directory, with the node image in a second, read-only store
below the cache. So nothing of it appears in the user's own podman, and removing it cannot touch anything else.
Every program prints one line of JSON, ``{"changed": bool, ...}``, for the task that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTAINERS_CONF = """\
[containers]
log_size_max = 10485760
[network]
network_backend = "netavark"
network_config_dir = "{root}/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = "{run}/libpod"
static_dir = "{graph}/libpod"
volume_path = "{graph}/volumes"
"""

STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{graph}"
runroot = "{run}/storage"
[storage.options]
additionalimagestores = [{more}]
"""


class LabError(Exception):
    """Something on this machine stopped the lab: the text says what was expected and what came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab: its name and loopback addresses on the host, its directory (goes with ``lab_down``), the cache (stays)."""

    name: str
    loopback: str
    root: Path
    cache: Path

    @property
    def namespace(self) -> Path:
        """The network namespace of the lab."""
        return Path("/run/netns") / self.name

    @property
    def run(self) -> Path:
        """What the container store keeps until the host reboots."""
        return Path("/run") / self.name

    @property
    def image_run(self) -> Path:
        """What podman keeps while this lab looks into the store of node images; each lab takes away its own."""
        return self.run / "images"

    @property
    def images(self) -> Path:
        """The container store that holds nothing but node images."""
        return self.cache / "node-images" / "store"

    @property
    def containers(self) -> Path:
        """The container store of the machines."""
        return self.root / "containers"

    @property
    def forwarder_pid(self) -> Path:
        """Process id of the forwarder."""
        return self.root / "forwarder.pid"

    def machine(self, name: str) -> Path:
        """Return the directory of one machine: TPM, boot recording, host key, volumes."""
        return self.root / "machines" / name


def program(work: Callable[[Lab, str], bool | dict[str, Any]], commands: Sequence[str]) -> None:
    """Read the command line, do the work, print the one line for the starting task, or what stopped it.

    The work returns whether it changed anything, or that and more under the key ``changed``.
    """
    parser = ArgumentParser()
    parser.add_argument("command", choices=commands)
    parser.add_argument("--name", required=True, help="name of the lab on this host")
    parser.add_argument("--loopback", required=True, help="first three bytes of the addresses of its machines here")
    parser.add_argument("--lab", type=Path, required=True, help="directory of the lab")
    parser.add_argument("--cache", type=Path, required=True, help="directory for what outlives a lab")
    options = parser.parse_args()
    try:
        lab = Lab(name=options.name, loopback=options.loopback, root=options.lab, cache=options.cache)
        done = work(lab, options.command)
    except (LabError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(done if isinstance(done, dict) else {"changed": done}) + "\n")


def run(*argv: str, check: bool = True, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; a failure says what the command said.

    The output goes to files, not pipes: a container's monitor keeps them open for as long as the container lives.
    """
    with TemporaryFile() as out, TemporaryFile() as said:
        done = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, stdout=out, stderr=said, env=env)
        out.seek(0)
        said.seek(0)
        output, message = out.read().decode(errors="replace"), said.read().decode(errors="replace").strip()
    if check and done.returncode:
        raise LabError(f"expected success of: {' '.join(argv)}\ngot status {done.returncode}: {message or output}")
    return output


def process_of(pid_file: Path) -> int | None:
    """Return the process id in a file, None if there is none."""
    try:
        return int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return None


def command_line(pid: int) -> bytes:
    """Return a process's arguments; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def runs(pid_file: Path, directory: Path) -> int | None:
    """Return the id of the live process that a pid file names and whose arguments name our directory."""
    pid = process_of(pid_file)
    return pid if pid and str(directory).encode() in command_line(pid) else None


def write(path: Path, text: str | bytes, *, mode: int = 0o644) -> bool:
    """Write a file where it differs; True if it did."""
    data = text.encode() if isinstance(text, str) else text
    if path.is_file() and path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
    fresh.replace(path)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Podman:
    """podman on one of the lab's stores, inside the lab's network namespace where that matters."""

    config: Path
    namespace: Path | None

    def environment(self) -> dict[str, str]:
        """Return the environment that selects the store."""
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.config / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.config / "storage.conf"),
        }

    def argv(self, *words: str) -> list[str]:
        """Return the command line, entered into the namespace by nsenter (ip netns exec would hide the cgroups)."""
        enter = ["nsenter", f"--net={self.namespace}"] if self.namespace else []
        return [*enter, "podman", *words]

    def __call__(self, *words: str, check: bool = True) -> str:
        """Run podman."""
        return run(*self.argv(*words), check=check, env=self.environment())


def store(path: Path, *, run_directory: Path, more: Path | None = None, namespace: Path | None = None) -> Podman:
    """Configure one container store and return podman for it."""
    if more:
        more.mkdir(parents=True, exist_ok=True)  # podman looks for it before the first image is built
    listed = f'"{more}"' if more else ""
    names = {"root": path.parent, "graph": path, "run": run_directory, "more": listed}
    config = path.parent / f"{path.name}.conf"
    write(config / "containers.conf", CONTAINERS_CONF.format(**names))
    write(config / "storage.conf", STORAGE_CONF.format(**names))
    return Podman(config=config, namespace=namespace)


def machine_store(lab: Lab) -> Podman:
    """Return podman for the machines."""
    return store(lab.containers, run_directory=lab.run / "machines", more=lab.images, namespace=lab.namespace)


def image_store(lab: Lab) -> Podman:
    """Return podman for the node images."""
    return store(lab.images, run_directory=lab.image_run)


def mount_points() -> list[Path]:
    """Return where something is mounted, each point as often as it is; os.path.ismount misses bind mounts."""
    return [Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text().splitlines()]


def unmount_below(path: Path) -> None:
    """Unmount what container storage left mounted at or below a directory, deepest first."""
    found = [point for point in mount_points() if point.is_relative_to(path)]
    for point in sorted(found, key=lambda point: len(point.parts), reverse=True):
        run("umount", str(point), check=False)
