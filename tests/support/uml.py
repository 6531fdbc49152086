# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel with dm-crypt and dm-integrity in one process: User Mode Linux, if this machine's kernel lacks them.

Its root is this machine's file system, read only; disks are files; a directory of the test is its `/run/out`. It needs
no virtualization and no privileges, boots in seconds, and is a real kernel (Debian's 6.1).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = {"linux.uml": "user-mode-linux", "gcc": "gcc", "modprobe": "kmod", "cryptsetup": "cryptsetup-bin"}
DONE = "the script has ended with "

# cbc before dm-crypt, whose key types need it at load time
_MODULES = "cbc ecb xts hmac authenc crc32c_generic loop dm-mod dm-integrity dm-crypt"
_BEGIN = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t tmpfs tmpfs /run
mkdir -p /run/modules/lib/modules /run/cryptsetup /run/out /run/mnt
ln -s /usr/lib/uml/modules/$(uname -r) /run/modules/lib/modules/$(uname -r)
for module in {_MODULES}; do modprobe -d /run/modules $module; done
mount -t hostfs none /run/out -o @FOLDER@
cd /run/out
(set -eu; . ./script.sh) 2>&1
echo "{DONE}$?"
sync
halt -f
"""


def missing_packages() -> list[str]:
    """Return the missing packages."""
    return [package for program, package in PROGRAMS.items() if shutil.which(program) is None]


def run_in_uml(script: str, *, folder: Path, disks: Sequence[Path] = (), timeout_seconds: float = 900) -> str:
    """Run a shell script as root in such a kernel; return its output.

    ``disks`` are /dev/ubda, /dev/ubdb and so on; ``folder`` is the working directory. Raises `RuntimeError` with the
    whole output unless the script exits with 0.
    """
    argv = _prepared(script, folder=folder, disks=disks)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_seconds, check=False)
    output = done.stdout.decode(errors="replace").replace("\r\n", "\n")
    printed, ended, rest = output.partition(DONE)
    if not ended or rest.split()[0] != "0":
        raise RuntimeError(f"expected the script to end with 0:\n{output}\n{done.stderr.decode(errors='replace')}")
    return printed


def cut_in_uml(script: str, *, folder: Path, disks: Sequence[Path], sign: Path, timeout_seconds: float = 900) -> None:
    """Run a script in such a kernel until the file ``sign`` exists, then kill the kernel like a power cut.

    Unwritten data of the kernel are lost. Raises `RuntimeError` if ``sign`` never appears.
    """
    argv = _prepared(script, folder=folder, disks=disks)
    output = (folder / "cut.log").open("wb")
    with output, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, start_new_session=True) as kernel:
        deadline = time.monotonic() + timeout_seconds
        while not sign.exists() and kernel.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if kernel.poll() is None:
            os.killpg(kernel.pid, signal.SIGKILL)
    if not sign.exists():
        said = (folder / "cut.log").read_text(errors="replace")
        raise RuntimeError(f"expected {sign.name} to come before the kernel's end:\n{said}")


def _prepared(script: str, *, folder: Path, disks: Sequence[Path]) -> list[str]:
    """Write the scripts, and return the command that starts the kernel with them."""
    folder = folder.resolve()
    library, source = folder / "uml_registers.so", Path(__file__).with_name("uml_registers.c")
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-nostdlib", "-o", library, source], check=True)
    begin, inner = folder / "begin.sh", folder / "script.sh"
    inner.write_text(script, encoding="utf-8")
    begin.write_text(_BEGIN.replace("@FOLDER@", str(folder)), encoding="utf-8")
    begin.chmod(0o700)
    return [
        "env",
        f"LD_PRELOAD={library}",
        "linux.uml",
        "mem=512M",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "loglevel=1",
        f"init={begin}",
        f"uml_dir={folder}",
        "con=null",
        "con0=null,fd:1",
        *(f"ubd{number}={Path(disk).resolve()}" for number, disk in enumerate(disks)),
    ]
