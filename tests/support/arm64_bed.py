# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine with arm64 on a host with another processor: AAVMF, a TPM, Debian 12, and a user with sudo.

The image is made once, by programs of arm64 that the kernel of this host runs by qemu-user (binfmt_misc). The machine
has the network of QEMU itself: it reaches 127.0.0.1 of this host as 10.0.2.2, and has its sshd at a port of this host.
Debian's kernel for clouds is the one with a driver for the TPM that QEMU's arm64 machines have.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.build import WheelCollector
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import Architecture
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import PartCache
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.swtpm import CertificateAuthority, manufacture
from ansible_collections.attested.kubernetes.tests.support.vm_bed import PROGRAMS, SECONDS, registers
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "w-arm"
HOST = "10.0.2.2"
"""This host's 127.0.0.1, as the machine sees it."""
FIRMWARE = Path("/usr/share/AAVMF")
NEEDED = {
    "aarch64-linux-gnu-objcopy": "binutils-aarch64-linux-gnu",
    "arch-test": "arch-test",
    "mkfs.vfat": "dosfstools",
    "mcopy": "mtools",
    "mmdebstrap": "mmdebstrap",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-img": "qemu-utils",
    "qemu-system-aarch64": "qemu-system-arm",
    "sfdisk": "fdisk",
    "swtpm": "swtpm",
}
BINFMT = Path("/proc/sys/fs/binfmt_misc")
# an ELF file of 64 bits for AArch64 (elf.h); the interpreter is opened at once, for it is not in the tree (F)
AARCH64 = (
    r":qemu-aarch64:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:OCF"
)
PACKAGES = (
    "systemd-sysv", "dbus", "openssh-server", "sudo", "python3", "python3-venv", "tpm2-tools", "udev", "iproute2",
    "linux-image-cloud-arm64", "initramfs-tools", "systemd-boot-efi",
)  # fmt: skip
MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "ext4", "tpm_tis")
NETWORK = "[Match]\\nName=eth0\\n[Network]\\nDHCP=yes\\n"
COMMAND_LINE = "root=LABEL=root rw console=ttyAMA0 net.ifnames=0 quiet"
LOG = "/sys/kernel/security/tpm0/binary_bios_measurements"
VENV = "/opt/attested/venv"


def missing() -> str:
    """Return why no such machine can be started here; empty if one can."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    packages = {package for program, package in NEEDED.items() if shutil.which(program, path=path) is None}
    packages |= set() if (FIRMWARE / "AAVMF_CODE.fd").exists() else {"qemu-efi-aarch64"}
    if packages:
        return f"expected the packages {', '.join(sorted(packages))} on this host"
    return "" if os.geteuid() == 0 else "root is needed to make the image"


@contextmanager
def foreign_programs() -> Iterator[None]:
    """Let this host run programs of arm64; what was not there before goes away at the end."""
    mounted, entry = (BINFMT / "register").exists(), BINFMT / "qemu-aarch64"
    if not mounted:
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)], check=True)
    registered = entry.exists()
    if not registered:
        (BINFMT / "register").write_text(AARCH64)
    try:
        yield
    finally:
        if not registered:
            entry.write_text("-1")
        if not mounted:
            subprocess.run(["umount", str(BINFMT)], check=True)


def of_the_lab(name: str) -> Any:
    """Import a program of the role, as Python does that starts one of them: from its own directory."""
    sys.path.insert(0, str(PROGRAMS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PROGRAMS))


def recipe(tree: Path) -> list[str]:
    """Return the mmdebstrap command that makes the root file system."""
    image = of_the_lab("image")
    initrd = (
        'mkdir -p "$1/etc/initramfs-tools/conf.d"'
        ' && printf "MODULES=list\\nCOMPRESS=zstd\\nRESUME=none\\n" > "$1/etc/initramfs-tools/conf.d/lab"'
        f' && printf "%s\\n" {" ".join(MODULES)} > "$1/etc/initramfs-tools/modules"'
    )
    own = (
        f'printf "{NETWORK}" > "$1/etc/systemd/network/lab.network"'
        ' && chroot "$1" systemctl --quiet enable systemd-networkd'
        ' && ln -sf /dev/null "$1/etc/systemd/system/systemd-networkd-wait-online.service"'
        f' && echo {NAME} > "$1/etc/hostname" && echo "127.0.0.1 localhost {NAME}" > "$1/etc/hosts"'
        ' && mkdir -m 700 "$1/home/admin/.ssh" && rm -f "$1/etc/resolv.conf" && : > "$1/etc/machine-id"'
    )
    return [
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--architectures=arm64",
        "--aptopt=Apt::Install-Recommends false",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")),
        f"--include={','.join(PACKAGES)}", f"--setup-hook={initrd}",
        *(f"--customize-hook={hook}" for hook in (image.ADMIN, image.SSHD, image.SYSTEMD, own)),
        "bookworm", str(tree),
    ]  # fmt: skip


def make_image(cache: Path) -> Path:
    """Return the directory with ``disk.raw`` and the admin's ``key`` in the cache; made if it is not there."""
    words = [*recipe(Path("root")), COMMAND_LINE]
    place = cache / "vm-images" / f"arm64-{hashlib.sha256(repr(words).encode()).hexdigest()[:20]}"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as scratch, foreign_programs():
        tree, fresh = Path(scratch) / "root", Path(scratch) / "image"
        subprocess.run(recipe(tree), stdin=subprocess.DEVNULL, check=True)
        fresh.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(fresh / "key")], check=True)
        shutil.copy(fresh / "key.pub", tree / "home/admin/.ssh/authorized_keys")
        subprocess.run(["chroot", str(tree), "chown", "-R", "admin:", "/home/admin/.ssh"], check=True)
        of_the_lab("vm_image").make_disk(tree, make_system_partition(tree, Path(scratch)), fresh / "disk.raw")
        fresh.rename(place)
    return place


def make_system_partition(tree: Path, scratch: Path) -> Path:
    """Make the system partition with the one program that the firmware finds: kernel, initrd and command line."""
    lab = of_the_lab("vm_image")
    release = next((tree / "lib" / "modules").iterdir()).name
    stub, unified, partition = tree / "usr/lib/systemd/boot/efi/linuxaa64.efi.stub", scratch / "uki", scratch / "esp"
    line, name = scratch / "line", scratch / "release"
    line.write_text(COMMAND_LINE)
    name.write_text(release)
    parts = {
        ".osrel": tree / "etc/os-release",
        ".cmdline": line,
        ".uname": name,
        ".linux": tree / "boot" / f"vmlinuz-{release}",
        ".initrd": tree / "boot" / f"initrd.img-{release}",
    }
    added = [f"--add-section={section}={path}" for section, path in parts.items()]
    base = lab.base_of(stub)
    added += [f"--change-section-vma={section}={base + lab.SECTIONS[section]:#x}" for section in parts]
    subprocess.run(["aarch64-linux-gnu-objcopy", *added, str(stub), str(unified)], check=True)
    with partition.open("wb") as file:
        file.truncate(lab.PARTITION_MEBIBYTES * lab.MEBIBYTE)
    subprocess.run(["mkfs.vfat", "-F", "32", "-n", "ESP", str(partition)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mmd", "-i", str(partition), "::/EFI", "::/EFI/BOOT"], check=True)
    subprocess.run(["mcopy", "-i", str(partition), str(unified), "::/EFI/BOOT/BOOTAA64.EFI"], check=True)
    return partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Machine:
    """The running machine; ``port`` is that of its sshd on this host."""

    home: Path
    image: Path
    port: int

    @property
    def ssh(self) -> tuple[str, ...]:
        """The options of ssh and scp."""
        known = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        return ("-i", str(self.image / "key"), *known, "-o", "ConnectTimeout=60", "-o", f"Port={self.port}")

    def inside(self, script: str, *, check: bool = True) -> str:
        """Run a shell script as root on the machine and return its output."""
        argv = ["ssh", *self.ssh, "admin@127.0.0.1", "sudo", "sh", "-eu"]
        done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert done.returncode == 0 or not check, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def registers(self) -> dict[int, str]:
        """Read the registers with tpm2-tools and the kernel's device."""
        return registers(self.inside("tpm2_pcrread -T device:/dev/tpmrm0 sha256"))

    def copy(self, *files: Path) -> None:
        """Copy files to /var/tmp of the machine."""
        argv = ["scp", "-q", *self.ssh, *map(str, files), "admin@127.0.0.1:/var/tmp/"]
        subprocess.run(argv, check=True, timeout=SECONDS)

    def ask(self, module: str, **options: Any) -> dict[str, Any]:
        """Run a module of the collection on the machine by Ansible over ssh; return its result."""
        program = str(Path(sys.executable).parent / "ansible")
        settings = {"ANSIBLE_SSH_ARGS": " ".join(self.ssh), "ANSIBLE_FORCE_COLOR": "0"}
        place = {"ansible_host": "127.0.0.1", "ansible_python_interpreter": f"{VENV}/bin/python"}
        words = ["-i", f"{NAME},", "-b", "-T", "300", "-u", "admin", "-e", json.dumps(place)]
        words += ["-m", f"attested.kubernetes.{module}", *(("-a", json.dumps(options)) if options else ()), NAME]
        argv, environment = [program, *words], {**os.environ, **settings}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert "=> {" in done.stdout, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
        return found

    def install_wheels(self, cache: Path) -> None:
        """Make the environment of a node from the wheels that a bundle for arm64 has."""
        collector = WheelCollector(
            runner=SystemRunner(),
            cache=PartCache(cache),
            requirements=ROOT / "roles/bundle_builder/files/python",
            tree=ROOT,
            python="3.11",
            architecture=Architecture.ARM64,
        )
        part, _made = collector.ensure()
        self.copy(part.path)
        install = "pip --quiet --disable-pip-version-check install --no-compile --no-index --no-deps"
        self.inside(
            f"mkdir -p /var/tmp/wheels {VENV}\ntar -C /var/tmp/wheels -xf /var/tmp/{part.path.name}\n"
            f"python3 -m venv {VENV}\n{VENV}/bin/{install} /var/tmp/wheels/*.whl"
        )


def words(home: Path, port: int) -> list[str]:
    """Return QEMU's command line."""
    return [
        "qemu-system-aarch64", "-name", NAME, "-machine", "virt", "-cpu", "cortex-a72",
        "-accel", "tcg,thread=multi,tb-size=256", "-smp", "1", "-m", "1536",
        "-display", "none", "-nodefaults", "-no-user-config", "-rtc", "base=utc",
        "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE / 'AAVMF_CODE.fd'}",
        "-drive", f"if=pflash,format=raw,unit=1,file={home / 'variables.fd'}",
        "-drive", f"if=none,id=root,file={home / 'disk.qcow2'},format=qcow2,cache=unsafe",
        "-device", "virtio-blk-pci,drive=root,bootindex=1",
        "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci",
        "-chardev", f"file,id=console,path={home / 'console.log'}", "-serial", "chardev:console",
        "-chardev", f"socket,id=tpm,path={home / 'tpm.control'}",
        "-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-tis-device,tpmdev=tpm",
    ]  # fmt: skip


@contextmanager
def arm64_machine(home: Path, cache: Path) -> Iterator[Arm64Machine]:
    """Start one machine with a new TPM, wait until systemd has started every unit, and end it with the block."""
    image, port = make_image(cache), free_port()
    manufacture(home / "tpm-state", CertificateAuthority(home / "authority"))
    disk = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image / "disk.raw"), "-F", "raw"]
    subprocess.run([*disk, str(home / "disk.qcow2")], check=True)
    shutil.copy(FIRMWARE / "AAVMF_VARS.fd", home / "variables.fd")
    tpm = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={home / 'tpm-state'}", "--terminate"]
    machine = Arm64Machine(home=home, image=image, port=port)
    with (home / "log").open("wb") as log:
        control = ["--ctrl", f"type=unixio,path={home / 'tpm.control'}"]
        running = [subprocess.Popen([*tpm, *control], stdin=subprocess.DEVNULL, stdout=log, stderr=log)]
        try:
            wait_for((home / "tpm.control").exists)
            running.append(subprocess.Popen(words(home, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            _wait(machine, running)
            yield machine
        finally:
            for process in reversed(running):
                process.kill()
                process.wait()


def _wait(machine: Arm64Machine, running: list[subprocess.Popen[bytes]]) -> None:
    deadline, said = time.monotonic() + SECONDS, ""
    while said != "running":
        log = (machine.home / "log").read_text() if any(one.poll() is not None for one in running) else ""
        assert not log, log
        assert time.monotonic() < deadline, f"{said}: {(machine.home / 'console.log').read_bytes()[-1000:]!r}"
        time.sleep(1)
        said = machine.inside("systemctl is-system-running --wait", check=False).strip()
