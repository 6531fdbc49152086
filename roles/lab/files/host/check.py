# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say everything that this host lacks for a lab, at once; install nothing.

Prints JSON: ``packages`` (Debian packages that are missing), ``problems`` (what no package cures) and ``message``,
the text for a person.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from argparse import ArgumentParser
from pathlib import Path

DISK_BYTES = 12 * 10**9

# package, and the program or file that shows that it is there
PACKAGES = {
    "conmon": "conmon",
    "iproute2": "ip",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "netavark": "/usr/lib/podman/netavark",
    "nftables": "nft",
    "openssh-client": "ssh-keygen",
    "podman": "podman",
    "runc": "runc",
    "swtpm": "swtpm",
    "swtpm-tools": "swtpm_setup",
    "util-linux": "nsenter",
    "zstd": "zstd",
}

# of virtual machines
VM_PACKAGES = {
    "binutils": "objcopy",
    "dosfstools": "mkfs.vfat",
    "e2fsprogs": "mke2fs",
    "fdisk": "sfdisk",
    "mtools": "mcopy",
    "ovmf": "/usr/share/OVMF/OVMF_CODE_4M.fd",
    "qemu-system-x86": "qemu-system-x86_64",
    "qemu-utils": "qemu-img",
}


def present(sign: str, path: str) -> bool:
    """Tell whether a program of the search path, or a file, is there."""
    return Path(sign).exists() if sign.startswith("/") else shutil.which(sign, path=path) is not None


def problems(*, virtual_machines: bool) -> list[str]:
    """Return what stands in the way and is no missing package."""
    free = shutil.disk_usage(Path.home()).free
    found = {
        f"root is needed: containers, namespaces and loopback ports are made (got uid {os.geteuid()})": os.geteuid()
        != 0,
        f"Linux is needed, got {platform.system()}": platform.system() != "Linux",
        "network namespaces are needed, but /proc/self/ns/net is missing": not Path("/proc/self/ns/net").exists(),
        "control groups are needed, but /sys/fs/cgroup is empty": not any(Path("/sys/fs/cgroup").glob("*")),
        "/dev/kmsg is needed by the kubelet, but is missing": not Path("/dev/kmsg").exists(),
        f"{DISK_BYTES / 1e9:.0f} GB of free disk are needed in {Path.home()}, got {free / 1e9:.1f}": free < DISK_BYTES,
    }
    if virtual_machines:
        machine = platform.machine()
        found[f"virtual machines are made for x86_64 only, got {machine}"] = machine != "x86_64"
        found["virtual machines need /dev/net/tun, which is missing"] = not Path("/dev/net/tun").exists()
    return [text for text, is_so in found.items() if is_so]


def main() -> None:
    """Look and print."""
    parser = ArgumentParser()
    parser.add_argument("--path", default=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    parser.add_argument("--virtual-machines", action="store_true")
    options = parser.parse_args()
    wanted = PACKAGES | (VM_PACKAGES if options.virtual_machines else {})
    packages = sorted(package for package, sign in wanted.items() if not present(sign, options.path))
    obstacles = problems(virtual_machines=options.virtual_machines)
    lines = ["LAB_PREREQUISITES_MISSING: this host cannot hold a lab yet.", *obstacles]
    if packages:
        lines.append(f"Missing packages: {' '.join(packages)}")
        lines.append(f"Run: apt-get install --no-install-recommends {' '.join(packages)}")
        lines.append("or let the lab do it: -e lab_install_packages=true")
    sys.stdout.write(json.dumps({"packages": packages, "problems": obstacles, "message": "\n".join(lines)}) + "\n")


if __name__ == "__main__":
    main()
