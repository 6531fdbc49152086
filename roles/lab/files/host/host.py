# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare the host for the lab, and put it back: network namespace, shared settings, control groups.

What the host had before is written to ``<lab>/record.json`` before anything is changed, so that a lab which failed
half-way is removed as completely as one that worked.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import (
    Lab,
    LabError,
    command_line,
    machine_store,
    mount_points,
    program,
    run,
    runs,
    unmount_below,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUBNET, GATEWAY = "10.89.7.0/24", "10.89.7.1"
PROC_SYS = Path("/proc/sys")
NAMESPACES = Path("/run/netns")

# one file a lab of this host, naming its record
REGISTER = Path("/run/attested-labs")
CGROUPS = Path("/sys/fs/cgroup")

# needed for three systemd and three kubelets; one idle node uses 8 instances of the default 128
RAISED = {"fs/inotify/max_user_instances": 8192}

# Not raised by us, and the nodes write to copies of their own; put back all the same, because a container engine or a
# first process that did not come that far may have touched them.
WATCHED = (
    "fs/file-max", "fs/inotify/max_queued_events", "fs/inotify/max_user_watches", "fs/nr_open",
    "kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
    "kernel/pid_max", "net/ipv4/ip_forward", "vm/max_map_count", "vm/overcommit_memory", "vm/panic_on_oom",
)  # fmt: skip

END_SECONDS = 3.0

PODMAN = """\
#!/bin/sh
# podman on the container store of the lab, in its network namespace
export CONTAINERS_CONF={lab}/containers.conf/containers.conf
export CONTAINERS_STORAGE_CONF={lab}/containers.conf/storage.conf
exec nsenter --net={namespace} podman "$@"
"""

SHELL = """\
#!/bin/bash
# A shell in the lab's network, in its site: nodes by their own addresses, everything else as on the host.
cd {lab}/site || exit
exec nsenter --net={namespace} bash --rcfile <(cat ~/.bashrc 2>/dev/null; echo 'PS1="({name}) $PS1"') "$@"
"""


def observe() -> dict[str, Any]:
    """Return what the lab may change, as it is now."""
    settings = (PROC_SYS / name for name in (*RAISED, *WATCHED))
    return {
        "boot_id": boot_id(),
        "time": time.time(),
        "sysctls": {str(f.relative_to(PROC_SYS)): f.read_text().strip() for f in settings if f.exists()},
        "netns_mounted": NAMESPACES in mount_points(),
        "netns_directory": NAMESPACES.exists(),
    }


def boot_id() -> str:
    """Return the id of the host's boot: what was recorded before another boot is not put back."""
    return (PROC_SYS / "kernel/random/boot_id").read_text().strip()


@contextmanager
def alone() -> Iterator[None]:
    """Keep other labs from coming and going meanwhile: each looks at the register and changes the host by it."""
    place = os.open(REGISTER.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def record(lab: Lab) -> None:
    """Write down the state of the host, once in a lab's life and once more after a reboot of the host."""
    with alone():
        REGISTER.mkdir(exist_ok=True)
        write(REGISTER / lab.name, f"{lab.root / 'record.json'}\n")
        path = lab.root / "record.json"
        if not path.exists() or json.loads(path.read_text())["boot_id"] != boot_id():
            write(path, json.dumps(observe(), indent=2) + "\n")


def leave(lab: Lab) -> None:
    """Hand over to the labs that remain, or put back the settings if there are none.

    It is the last step: a lab that goes at the same time does not yet miss this one before its namespace is gone.
    """
    with alone():
        before = json.loads((lab.root / "record.json").read_text())
        if not hand_over(lab, before):
            restore(before)


def hand_over(lab: Lab, before: dict[str, Any]) -> bool:
    """Leave what the labs of this host share to those that remain; True if there are any.

    A lab that came later found the host as this one had changed it. It gets this one's record, so that the last lab
    puts back what the first one found.
    """
    (REGISTER / lab.name).unlink(missing_ok=True)
    others = [Path(file.read_text().strip()) for file in REGISTER.glob("*")]
    alive = [path for path in others if path.exists() and json.loads(path.read_text())["boot_id"] == boot_id()]
    for path in alive:
        if before["time"] < json.loads(path.read_text())["time"]:
            write(path, json.dumps(before, indent=2) + "\n")
    if not alive:
        shutil.rmtree(REGISTER, ignore_errors=True)
    return bool(alive)


def up(lab: Lab) -> bool:
    """Raise the settings, make namespace and network; True if anything was missing."""
    record(lab)
    changed = write_tools(lab)
    for name, wanted in RAISED.items():
        if int((PROC_SYS / name).read_text()) < wanted:
            (PROC_SYS / name).write_text(f"{wanted}\n")
            changed = True
    if lab.namespace not in mount_points():
        run("ip", "netns", "add", lab.name)
        enter = ("nsenter", f"--net={lab.namespace}")
        run(*enter, "ip", "link", "set", "lo", "up")
        # else traffic between pods of one bridge would meet the lab's masquerading
        run(*enter, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0", check=False)
        changed = True
    podman = machine_store(lab)
    if not (lab.root / "networks" / f"{lab.name}.json").exists():
        # an internal network would have no default route, and kubeadm could not find the node's address
        podman("network", "create", "--subnet", SUBNET, "--gateway", GATEWAY, "--disable-dns", lab.name)
        changed = True
    return changed


def write_tools(lab: Lab) -> bool:
    """Write the lab's directories, the password of its site's vault and two scripts; True if one was missing."""
    for path in ("bundles", "site/group_vars/nodes", "site/group_vars/virtual_machines"):
        (lab.root / path).mkdir(parents=True, exist_ok=True)
    names = {"lab": lab.root, "name": lab.name, "namespace": lab.namespace}
    password = lab.root / "vault-password"
    written = [
        write(lab.root / "podman", PODMAN.format(**names), mode=0o755),
        write(lab.root / "shell", SHELL.format(**names), mode=0o755),
        not password.exists() and write(password, secrets.token_urlsafe(32) + "\n", mode=0o600),
    ]
    return any(written)


def down(lab: Lab) -> bool:
    """Remove everything that the record and the lab directory know of; True if there was anything."""
    path = lab.root / "record.json"
    if not path.exists():
        if lab.root.exists() and any(lab.root.iterdir()):
            raise LabError(f"expected a lab in {lab.root}, got a directory without record.json: not removed")
        return False
    steps: tuple[Callable[[], None], ...] = (
        lambda: end_processes(lab),
        lambda: remove_containers(lab),
        lambda: remove_network(lab),
        lambda: remove_groups(lab),
        lambda: leave(lab),
    )
    failures = [failure for failure in map(attempt, steps) if failure]
    if failures:
        raise LabError("\n".join([*failures, f"{lab.root} is kept: run lab_down again"]))
    shutil.rmtree(lab.root)
    return True


def attempt(step: Callable[[], None]) -> str:
    """Take one step, so that the next ones are taken in any case; return what went wrong."""
    try:
        step()
    except (LabError, OSError) as error:
        return str(error)
    return ""


def end_processes(lab: Lab) -> None:
    """End forwarder, virtual machines, TPMs: each by its own pid file, after a look that the process is still ours."""
    files = [lab.forwarder_pid, *lab.root.glob("machines/*/vm.pid"), *lab.root.glob("machines/*/tpm.pid")]
    ours = [pid for pid in (runs(file, lab.root) for file in files) if pid]
    for pid in ours:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while any(map(command_line, ours)):
        if time.monotonic() > deadline:
            for pid in filter(command_line, ours):
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def remove_containers(lab: Lab) -> None:
    """Remove the machines, their network and the mounts of both stores."""
    if lab.containers.exists() and lab.namespace.exists():
        podman = machine_store(lab)
        podman("rm", "--all", "--force", "--time", "0", check=False)
        podman("network", "rm", "--force", lab.name, check=False)
        left = podman("ps", "--all", "--quiet").split()
        if left:
            raise LabError(f"expected no container of the lab, got {len(left)} that podman could not remove")
    for path in (lab.containers, lab.images, lab.run):
        unmount_below(path)
    shutil.rmtree(lab.run, ignore_errors=True)


def remove_network(lab: Lab) -> None:
    """Delete the namespace, and with it every link, rule and route of the lab."""
    if lab.namespace.exists():
        run("ip", "netns", "delete", lab.name)


def thaw(lab: Lab) -> None:
    """Let processes end that were killed while containerd had frozen their control group; wait until they have."""
    parents = [*CGROUPS.glob(f"*/{lab.name}"), CGROUPS / lab.name]
    for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        for file in (one for parent in parents for one in parent.rglob(name)):
            file.write_text(value)
    deadline = time.monotonic() + END_SECONDS
    while any(file.read_text() for parent in parents for file in parent.rglob("cgroup.procs")):
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def remove_groups(lab: Lab) -> None:
    """Remove the lab's control groups, empty by now, from every hierarchy."""
    thaw(lab)
    for parent in (*CGROUPS.glob(f"*/{lab.name}"), CGROUPS / lab.name):
        below = sorted((path for path in parent.rglob("*") if path.is_dir()), reverse=True)
        for path in (*below, parent):
            if path.is_dir():
                path.rmdir()


def restore(before: dict[str, Any]) -> None:
    """Put back the settings and the place of namespaces that the labs share; a reboot has done so already."""
    if before["boot_id"] != boot_id():
        return
    for name, value in before["sysctls"].items():
        file = PROC_SYS / name
        if file.exists() and file.read_text().strip() != value:
            file.write_text(value + "\n")
    if NAMESPACES.exists() and not any(NAMESPACES.iterdir()):
        while not before["netns_mounted"] and NAMESPACES in mount_points():
            run("umount", str(NAMESPACES))
        if not before["netns_directory"]:
            NAMESPACES.rmdir()


if __name__ == "__main__":
    program(lambda lab, command: up(lab) if command == "up" else down(lab), ("up", "down"))
