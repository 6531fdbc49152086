# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud image of Debian with cloud-init, made here from packages, and machines that start from it in a lab.

The image has no user, no key and nothing of the collection. What a machine is told is its NoCloud seed: user data, its
name, its address. Firmware, TPM and hardware are those of the lab's other virtual machines.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.arm64_bed import of_the_lab
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.lab import Lab

SUITE = "bookworm"
ADMIN = "admin"
RSA_CERTIFICATE = "0x1c00002"
"""The NV index of the RSA endorsement certificate (TCG EK Credential Profile 2.5, section 2.2.1.4)."""
SEED_SLOT = "0x7"
# in place of a DNS server: the lab has none
NAMES = (
    'echo "127.0.0.1 localhost" > "$1/etc/hosts" && echo "10.89.7.11 api.lab.test" >> "$1/etc/hosts"'
    ' && echo "nameserver 10.89.7.1" > "$1/etc/resolv.conf"'
)
# no other locale is installed, and keys take long where a machine is emulated
CLOUD = 'printf "locale: C.UTF-8\\nssh_genkeytypes: [ed25519]\\n" > "$1/etc/cloud/cloud.cfg.d/90-image.cfg"'
NETWORKD = 'chroot "$1" systemctl --quiet enable systemd-networkd.service'


def recipe(tree: Path) -> list[str]:
    """Return the mmdebstrap command that makes the root file system."""
    lab, node = of_the_lab("vm_image"), of_the_lab("image")
    packages = (*node.packages(SUITE), *lab.MORE_PACKAGES, "cloud-init")
    return [
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--aptopt=Apt::Install-Recommends false",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in lab.LEFT_OUT),
        f"--include={','.join(packages)}",
        f"--setup-hook={lab.INITRD}",
        *(f"--customize-hook={hook}" for hook in (node.SYSTEMD, lab.MASK, NETWORKD, CLOUD, node.FORGET, NAMES)),
        SUITE, str(tree),
    ]  # fmt: skip


def cloud_image(cache: Path) -> Any:
    """Return the image in the cache, as vm_image.py describes one; made if it is not there."""
    lab = of_the_lab("vm_image")
    words = [*recipe(Path("root")), lab.COMMAND_LINE, lab.TABLE, repr(lab.SECTIONS)]
    place = cache / "vm-images" / f"cloud-{hashlib.sha256(repr(words).encode()).hexdigest()[:20]}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as scratch:
            fresh, tree = lab.VmImage(path=Path(scratch) / "image"), Path(scratch) / "root"
            fresh.path.mkdir(mode=0o755)
            subprocess.run(recipe(tree), stdin=subprocess.DEVNULL, check=True)
            lab.keep_parts(tree, fresh.parts)
            partition = Path(scratch) / "esp.img"
            lab.make_system_partition(fresh.parts, partition)
            lab.make_disk(tree, partition, fresh.disk)
            fresh.path.rename(place)
    return lab.VmImage(path=place)


def with_login(user_data: str, key: Path, host_key: Path) -> str:
    """Return user data that also lets an admin log in, as for the one machine that the profile is learned from."""
    user = {
        "name": ADMIN,
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "shell": "/bin/bash",
        "ssh_authorized_keys": [key.read_text().strip()],
    }
    keys = {
        "ed25519_private": host_key.read_text(),
        "ed25519_public": host_key.with_suffix(".pub").read_text().strip(),
    }
    return "#cloud-config\n" + yaml.safe_dump({**yaml.safe_load(user_data), "users": [user], "ssh_keys": keys})


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMachine:
    """A machine of the lab ``lab`` that starts from the image; ``number``: the last byte of its address."""

    lab: Lab
    name: str
    number: int
    cache: Path

    def _vm(self) -> Any:
        vms, common = of_the_lab("vms"), of_the_lab("common")
        lab = common.Lab(name=self.lab.name, loopback=self.lab.loopback, root=self.lab.directory, cache=self.cache)
        machine = vms.Machine(
            name=self.name, address=f"10.89.7.{self.number}", forward=f"{self.lab.loopback}.{self.number}"
        )
        return vms.Vm(lab=lab, machine=machine, image=cloud_image(self.cache))

    def deliver(self) -> bytes:
        """Manufacture its TPM; return the certificate of its RSA endorsement key, DER, which comes with the machine."""
        vm, vms, machines = self._vm(), of_the_lab("vms"), of_the_lab("machines")
        vms.describe(vm.lab, [vm.machine])
        machines.make_tpm(vm.lab, vm.machine)
        machines.start_tpm(vm.lab, vm.machine)
        try:
            stored = self.lab.tpm(self.name, "tpm2_nvread", "-C", "o", RSA_CERTIFICATE)
        finally:
            machines.stop_tpm(vm.home)
        return x509.load_der_x509_certificate(stored).public_bytes(Encoding.DER)

    def start(self, user_data: str) -> None:
        """Turn it on for the first time with a seed."""
        vm, vms = self._vm(), of_the_lab("vms")
        vms.make_disks(vm)
        vms.start_tpm(vm)
        vms.plug_in(vm)
        vms.inside(vm.lab, *vms.words(vm), *self._seed(vm, user_data))

    def cut(self) -> None:
        """Turn it off."""
        of_the_lab("vms").cut(self._vm())

    @property
    def console(self) -> str:
        """The last lines that it printed."""
        file = self.lab.directory / "machines" / self.name / "console.log"
        return file.read_bytes()[-3000:].decode(errors="replace")

    def _seed(self, vm: Any, user_data: str) -> list[str]:
        """Write the seed (cloud-init, NoCloud: a file system with the label CIDATA); return QEMU's words for it."""
        machines, seed, folder = of_the_lab("machines"), vm.home / "seed.img", vm.home / "seed"
        address = {"match": {"macaddress": machines.hardware_address(vm.machine)}, "set-name": "eth0"}
        address |= {"addresses": [f"{vm.machine.address}/24"], "gateway4": "10.89.7.1"}
        folder.mkdir()
        (folder / "user-data").write_text(user_data)
        (folder / "meta-data").write_text(yaml.safe_dump({"instance-id": self.name, "local-hostname": self.name}))
        (folder / "network-config").write_text(yaml.safe_dump({"version": 2, "ethernets": {"eth0": address}}))
        with seed.open("wb") as file:
            file.truncate(4 << 20)
        tools = shutil.which("mkfs.vfat", path="/usr/sbin:/sbin:/usr/bin:/bin") or "mkfs.vfat"
        subprocess.run([tools, "-n", "CIDATA", str(seed)], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mcopy", "-i", str(seed), *map(str, folder.iterdir()), "::/"], check=True)
        device = f"virtio-blk-pci,drive=seed,serial=seed,addr={SEED_SLOT}"
        return ["-drive", f"if=none,id=seed,file={seed},format=raw,readonly=on", "-device", device]


def listed(serials: dict[str, bytes]) -> str:
    """Return a maker's list of machines (CSV): serial number, and the certificate of the endorsement key in base64."""
    rows = [f"{serial},{base64.b64encode(certificate).decode()}" for serial, certificate in serials.items()]
    return "\n".join(["serial,ek_certificate", *rows, ""])


def identity_name(certificate: bytes) -> str:
    """Return the name of the machine's NodeIdentity: of the SHA-256 of its endorsement key's SubjectPublicKeyInfo."""
    public = x509.load_der_x509_certificate(certificate).public_key()
    return f"ek-{hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()[:20]}"
