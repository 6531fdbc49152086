# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the disks of the lab's virtual machines, one a suite of Debian, once for each recipe, from packages alone.

The same Debian as the node image, and what a machine without a container engine needs: a kernel, an initrd, and both
with the command line in one unified kernel image, which the firmware starts and measures. No loop device, mount or
device mapper of this host is used. The image's directory is named by the hash of everything that goes in.

What is put on a machine's own system partition is made here too, so that a machine may get another command line.
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
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from common import Lab, LabError, program, run, write
from image import ADMIN, FORGET, SSHD, SYSTEMD, packages

if TYPE_CHECKING:
    from collections.abc import Sequence

GUEST = Path(__file__).resolve().parents[1] / "vm"

# the generic kernel: Debian's cloud kernel has no 9p, by which a machine sees directories of this host
MORE_PACKAGES = (
    "linux-image-amd64", "initramfs-tools", "systemd-boot-efi", "udev", "libpam-systemd", "e2fsprogs", "fdisk",
    # what the playbook boot_image asks of a machine, and the boot loader that it is tried against
    "binutils", "efibootmgr", "grub-efi-amd64-bin", "grub2-common", "grub-efi-amd64-signed", "shim-signed",
)  # fmt: skip

LEFT_OUT = (
    "/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/lib/modules/*/kernel/sound/*",
    *(f"/lib/modules/*/kernel/drivers/{name}/*" for name in ("gpu", "media", "infiniband", "net/wireless", "staging")),
)  # fmt: skip

INITRD_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "ext4", "crc32c_generic")

# before the kernel's package is unpacked, so that its initrd is made once and as it shall be
INITRD = (
    'mkdir -p "$1/etc/initramfs-tools/conf.d"'
    ' && printf "MODULES=list\\nCOMPRESS=zstd\\nRESUME=none\\n" > "$1/etc/initramfs-tools/conf.d/lab"'
    f' && printf "%s\\n" {" ".join(INITRD_MODULES)} > "$1/etc/initramfs-tools/modules"'
)

MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    "systemd-networkd-wait-online.service", "dev-hugepages.mount",
)  # fmt: skip

MASK = f'for unit in {" ".join(MASKED)}; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done'

UNITS = (
    f'cp {GUEST}/lab-machine.service "$1/etc/systemd/system/"'
    ' && chroot "$1" systemctl --quiet enable systemd-networkd.service lab-machine.service'
)

COMMAND_LINE = "root=LABEL=root rw console=ttyS0 net.ifnames=0 quiet"

MEBIBYTE = 1 << 20
PARTITION_MEBIBYTES, ROOT_MEBIBYTES = 96, 8192
ROOT_START_MEBIBYTES = 1 + PARTITION_MEBIBYTES
TABLE = f"""\
label: gpt
label-id: 99999999-2222-3333-4444-555555555555
start=1MiB, size={PARTITION_MEBIBYTES}MiB, type=uefi, uuid=AAAAAAAA-2222-3333-4444-555555555555
start={ROOT_START_MEBIBYTES}MiB, size={ROOT_MEBIBYTES}MiB, type=linux, uuid=BBBBBBBB-2222-3333-4444-555555555555
"""

# raised when the functions below make something else of the same words
EDITION = "1"

# behind its base, where systemd-stub has room for what is added to it; it reads the sections by their names
SECTIONS = {".osrel": 0x20000, ".cmdline": 0x30000, ".uname": 0x40000, ".linux": 0x2000000, ".initrd": 0x4000000}


@dataclass(frozen=True, slots=True, kw_only=True)
class VmImage:
    """An image in the cache: the disk that machines start from, and the parts of what their firmware starts."""

    path: Path

    @property
    def disk(self) -> Path:
        """The whole disk: partition table, system partition, root file system."""
        return self.path / "disk.raw"

    @property
    def parts(self) -> Path:
        """The stub, and beside it a file for each section."""
        return self.path / "parts"


def recipe(tree: Path, suite: str) -> list[str]:
    """Return the mmdebstrap command that makes the root file system of a suite in a directory."""
    return [
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--aptopt=Apt::Install-Recommends false",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT),
        f"--include={','.join((*packages(suite), *MORE_PACKAGES))}",
        f"--setup-hook={INITRD}",
        *(f"--customize-hook={hook}" for hook in (ADMIN, SSHD, SYSTEMD, MASK, UNITS, FORGET)),
        suite, str(tree),
    ]  # fmt: skip


def image(lab: Lab, suite: str) -> VmImage:
    """Return where the image of a suite's recipe is, or will be."""
    words = [platform.machine(), EDITION, *recipe(Path("root"), suite), COMMAND_LINE, TABLE, repr(SECTIONS)]
    words += [file.read_text() for file in sorted(GUEST.iterdir())]
    key = hashlib.sha256("\0".join(words).replace(str(GUEST), "").encode()).hexdigest()
    return VmImage(path=lab.cache / "vm-images" / key[:20])


def keep_parts(tree: Path, parts: Path) -> None:
    """Copy what the firmware will start out of the tree."""
    release = next((tree / "lib" / "modules").iterdir()).name
    parts.mkdir()
    shutil.copy(tree / "usr/lib/systemd/boot/efi/linuxx64.efi.stub", parts / "stub")
    shutil.copy(tree / "boot" / f"vmlinuz-{release}", parts / ".linux")
    shutil.copy(tree / "boot" / f"initrd.img-{release}", parts / ".initrd")
    shutil.copy(tree / "etc" / "os-release", parts / ".osrel")
    write(parts / ".uname", release)
    write(parts / ".cmdline", COMMAND_LINE)


def make_system_partition(parts: Path, target: Path, *, command_line: str = "") -> None:
    """Make the system partition with the one program that the firmware finds, the unified kernel image."""
    with TemporaryDirectory(prefix=".esp-", dir=target.parent) as scratch:
        unified, line = Path(scratch) / "unified.efi", Path(scratch) / ".cmdline"
        write(line, command_line or (parts / ".cmdline").read_text())
        files = {name: line if name == ".cmdline" else parts / name for name in SECTIONS}
        base = base_of(parts / "stub")
        added = [
            word for name, file in files.items()
            for word in (f"--add-section={name}={file}", f"--change-section-vma={name}={base + SECTIONS[name]:#x}")
        ]  # fmt: skip
        run("objcopy", *added, str(parts / "stub"), str(unified))
        forget_time(unified)
        target.unlink(missing_ok=True)
        with target.open("wb") as file:
            file.truncate(PARTITION_MEBIBYTES * MEBIBYTE)
        run("mkfs.vfat", "-F", "32", "-n", "ESP", "-i", "12345678", "--invariant", str(target))
        run("mmd", "-i", str(target), "::/EFI", "::/EFI/BOOT")
        run("mcopy", "-i", str(target), str(unified), "::/EFI/BOOT/BOOTX64.EFI")


def header_in(program: Path, data: bytes) -> int:
    """Return where the header of a program for the firmware begins."""
    header = int.from_bytes(data[0x3C:0x40], "little")
    if data[header : header + 4] != b"PE\0\0":
        raise LabError(f"expected a program for the firmware in {program}, got none")
    return header


def base_of(program: Path) -> int:
    """Return the address that a program's sections are counted from: 0 in Debian 12, another one in Debian 13."""
    data = program.read_bytes()
    header = header_in(program, data)
    return int.from_bytes(data[header + 48 : header + 56], "little")


def forget_time(program: Path) -> None:
    """Take the time of its making out of a program, or the same parts would be measured otherwise each time."""
    data = bytearray(program.read_bytes())
    header = header_in(program, data)
    data[header + 8 : header + 12] = bytes(4)
    data[header + 88 : header + 92] = bytes(4)  # the checksum, which nobody reads
    program.write_bytes(data)


def make_disk(tree: Path, partition: Path, disk: Path) -> None:
    """Lay out the disk: table, system partition, and the tree as a file system."""
    with disk.open("wb") as file:
        file.truncate((ROOT_START_MEBIBYTES + ROOT_MEBIBYTES + 1) * MEBIBYTE)
    table = disk.with_name("table")
    write(table, TABLE)
    run("sh", "-c", 'sfdisk --quiet "$1" < "$2"', "sh", str(disk), str(table))
    run("dd", f"if={partition}", f"of={disk}", "bs=1M", "seek=1", "conv=notrunc,sparse", "status=none")
    run(
        "mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-U", "11111111-2222-3333-4444-555555555555", "-d", str(tree),
        "-E", f"offset={ROOT_START_MEBIBYTES * MEBIBYTE},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
        str(disk), f"{ROOT_MEBIBYTES}M",
    )  # fmt: skip


def build(wanted: VmImage, suite: str) -> None:
    """Make the image beside its place and move it there as a whole."""
    with TemporaryDirectory(prefix=".new-", dir=wanted.path.parent) as scratch:
        fresh, tree = VmImage(path=Path(scratch) / "image"), Path(scratch) / "root"
        fresh.path.mkdir(mode=0o755)
        made = subprocess.run(recipe(tree, suite), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if made.returncode:
            raise LabError(f"the image could not be built: {made.stderr.decode(errors='replace')[-2000:]}")
        keep_parts(tree, fresh.parts)
        partition = Path(scratch) / "esp.img"
        make_system_partition(fresh.parts, partition)
        make_disk(tree, partition, fresh.disk)
        fresh.path.rename(wanted.path)


def ensure(lab: Lab, suites: Sequence[str]) -> dict[str, object]:
    """Build the images that the cache does not have; say where they are and how long it took."""
    wanted, began = {suite: image(lab, suite) for suite in suites}, time.monotonic()
    missing = [suite for suite, one in wanted.items() if not one.path.exists()]
    if missing:
        place = lab.cache / "vm-images"
        place.mkdir(parents=True, exist_ok=True)
        with (place / "lock").open("w") as lock:  # another lab may be at it
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = [suite for suite in missing if not wanted[suite].path.exists()]
            for suite in missing:
                build(wanted[suite], suite)
    images = {suite: str(one.path) for suite, one in wanted.items()}
    return {"changed": bool(missing), "images": images, "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    program(lambda lab, _unused: ensure(lab, json.load(sys.stdin)), ("ensure",))
