# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the node images of the lab, one a suite of Debian, once for each recipe.

An image is an unchanged Debian: what makes a container of it a machine of the lab (``files/node``) is mounted, so
a change there needs no new image. The tag is the hash of everything that goes in, and is the key of the cache.
Reads a JSON list of suites from standard input.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from common import Lab, LabError, Podman, image_store, program, unmount_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUITE = "bookworm"
"""Of a machine for which no other was asked for."""

PACKAGES = (
    "systemd-sysv", "dbus", "openssh-server", "sudo", "python3", "python3-apt", "python3-venv",
    "iproute2", "iptables", "nftables", "conntrack", "ethtool", "socat", "procps", "kmod", "iputils-ping",
    "ca-certificates", "curl", "git", "cryptsetup-bin", "containerd", "runc",
    "tpm2-tools", "libtss2-tcti-swtpm0", "busybox-static", "zstd",
)  # fmt: skip

RENAMED = {"trixie": {"libtss2-tcti-swtpm0": "libtss2-tcti-swtpm0t64"}}

# a machine's name, keys and resolver are made at its start, never in the image
FORGET = 'rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/ssh/ssh_host_*; : > "$1/etc/machine-id"'

ADMIN = (
    'chroot "$1" useradd --create-home --shell /bin/bash admin'
    ' && echo "admin ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/admin" && chmod 440 "$1/etc/sudoers.d/admin"'
)

SSHD = (
    'printf "PermitRootLogin no\\nPasswordAuthentication no\\nKbdInteractiveAuthentication no\\nUseDNS no\\n"'
    ' > "$1/etc/ssh/sshd_config.d/lab.conf"'
)

# a pod that ignores SIGTERM would otherwise hold a reboot for 90 s; the kernel's log is that of the whole machine
SYSTEMD = (
    'mkdir -p "$1/etc/systemd/system.conf.d" "$1/etc/systemd/journald.conf.d"'
    ' && printf "[Manager]\\nDefaultTimeoutStopSec=10s\\n" > "$1/etc/systemd/system.conf.d/lab.conf"'
    ' && printf "[Journal]\\nReadKMsg=no\\n" > "$1/etc/systemd/journald.conf.d/lab.conf"'
)

MASKED = (
    "getty@tty1.service", "getty.target", "systemd-udevd.service", "systemd-udev-trigger.service",
    "systemd-remount-fs.service", "dev-hugepages.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount", "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer",
)  # fmt: skip

MASK = f'for unit in {" ".join(MASKED)}; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done'


def packages(suite: str) -> list[str]:
    """Return the packages of a machine, as a suite calls them."""
    return [RENAMED.get(suite, {}).get(name, name) for name in PACKAGES]


def recipe(suite: str) -> list[str]:
    """Return the mmdebstrap command that writes the root file system of a suite to standard output."""
    return [
        "mmdebstrap", "--quiet", "--variant=minbase",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--include={','.join(packages(suite))}",
        *(f"--customize-hook={hook}" for hook in (ADMIN, SSHD, SYSTEMD, MASK, FORGET)),
        suite, "-",
    ]  # fmt: skip


def image_name(suite: str) -> str:
    """Return the name of a suite's image; the tag is the hash of the recipe and the machine type."""
    key = hashlib.sha256("\0".join([platform.machine(), *recipe(suite)]).encode()).hexdigest()
    return f"localhost/attested-lab-node:{key[:20]}"


def build(podman: Podman, suite: str) -> None:
    """Pipe the root file system into the store; nothing is kept if either end fails."""
    name = image_name(suite)
    importer = podman.argv("import", "--change", "STOPSIGNAL SIGRTMIN+3", "--change", "ENV container=podman", "-", name)
    with subprocess.Popen(recipe(suite), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as maker:
        taken = subprocess.run(importer, stdin=maker.stdout, capture_output=True, check=False, env=podman.environment())
        _unused, said = maker.communicate()
    if maker.returncode or taken.returncode:
        podman("rmi", "--force", name, check=False)
        raise LabError(f"the node image could not be built: {(said + taken.stderr).decode(errors='replace')[-2000:]}")


@contextmanager
def alone(lab: Lab) -> Iterator[None]:
    """Wait for any other lab of this host that looks or builds: who ends takes podman's database of the store away."""
    lab.images.mkdir(parents=True, exist_ok=True)
    with (lab.images.parent / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure(lab: Lab, suites: Sequence[str]) -> list[str]:
    """Build the images that the store does not have; return the suites of those that were built."""
    with alone(lab):
        return _ensure(lab, suites)


def _ensure(lab: Lab, suites: Sequence[str]) -> list[str]:
    podman = image_store(lab)
    try:
        missing = [suite for suite in suites if not podman("images", "--quiet", image_name(suite)).strip()]
        for suite in missing:
            build(podman, suite)
        return missing
    finally:
        unmount_below(lab.images)
        # podman's database fixes the paths of the store; without it the cache may be moved
        for path in (lab.images / "libpod", lab.image_run):
            shutil.rmtree(path, ignore_errors=True)


def work(lab: Lab, _command: str) -> dict[str, Any]:
    """Build what is missing for the suites that standard input names."""
    built = ensure(lab, json.load(sys.stdin))
    return {"changed": bool(built), "built": built}


if __name__ == "__main__":
    program(work, ("ensure",))
