# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker with Secure Boot on: shim and GRUB of its distribution by canary and approval, then an image.

Keys of the site and of Microsoft are enrolled in the setup mode of real firmware, as the documentation says it. Shim,
GRUB and all kernels are those of the distribution's archive. In the order of one lab's life; what each scene took is
printed, and fails nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.cut_run import cut_run
from ansible_collections.attested.kubernetes.tests.support.image_bed import signed_lists
from ansible_collections.attested.kubernetes.tests.support.vm_bed import (
    COMMAND_LINE,
    SECONDS,
    VM,
    HybridRoad,
    hybrid_road,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Run

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_VM_SECURE_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab whose worker has joined; it is used and left."""

WORDS = ("-e", '{"lab_workers": 0, "lab_vm_workers": 1, "lab_vm_secure_boot": true}')
PATIENCE = {"attested_boot_seconds": 2400, "attested_upgrade_drain_force": True}
LEFT_OUT = ("sound", *(f"drivers/{name}" for name in ("gpu", "media", "infiniband", "net/wireless", "staging")))
ENROLLED = "/sys/firmware/efi/efivars/PK-8be4df61-93ca-11d2-aa0d-00e098032b8c"

GRUB = """
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p /boot/efi
grep -q /boot/efi /etc/fstab || echo '/dev/vda1 /boot/efi vfat umask=0077 0 2' >> /etc/fstab
mountpoint -q /boot/efi || mount /boot/efi
mountpoint -q /sys/firmware/efi/efivars || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
cat > /etc/default/grub <<END
GRUB_TIMEOUT=0
GRUB_CMDLINE_LINUX="rw console=ttyS0 net.ifnames=0"
GRUB_CMDLINE_LINUX_DEFAULT=quiet
END
grub-install --target=x86_64-efi --efi-directory=/boot/efi --bootloader-id=debian
update-grub
"""


@pytest.fixture(scope="module")
def road() -> Iterator[HybridRoad]:
    """A cluster of one control plane, and a virtual machine that is its worker; its firmware is in setup mode."""
    if missing := [name for name in ("cert-to-efi-sig-list", "sign-efi-sig-list") if not shutil.which(name)]:
        pytest.skip(f"needs {' and '.join(missing)} (package efitools)")
    with hybrid_road("lab", "init", of="attested-secure:127.94.0", instead=USED_LAB, words=WORDS, disks=()) as one:
        one.joined(VM)
        yield one


def update(road: HybridRoad, *words: str, profiles: tuple[str, ...] = (), on: str = VM) -> Run:
    """Run the playbook on the worker, however it ends."""
    return road.finish("os_update", road.start("os_update", *order(*words, profiles=profiles, on=on)))


def order(*words: str, profiles: tuple[str, ...], on: str = VM) -> tuple[str, ...]:
    """Return the words of the command."""
    given = {**PATIENCE, "attested_profiles": ["lab", "lab-vm", *profiles]}
    return (*WORDS, "-e", json.dumps(given), "--limit", on, *words)


def approved(road: HybridRoad, refused: Run, name: str, *words: str, profiles: tuple[str, ...] = ()) -> None:
    """Approve the values that a run ended with as a profile; the worker comes back with them, in the same boot."""
    found = re.search(r"BOOT_NOT_APPROVED: expected -e approve=([0-9a-f]{64})", refused.output)
    assert found, refused.output[-8000:]
    boot = road.boot_id(VM)
    assert not road.is_active(VM, "kubelet")
    wait_for(lambda: "PCR_MISMATCH" in refusals(road), seconds=SECONDS)
    approval = ("-e", f"approve={found[1]}", "-e", f"profile={name}")
    run = update(road, *words, *approval, profiles=profiles, on=f"{VM},{road.plane}")
    assert run.returncode == 0, run.output[-8000:]
    assert (road.site / "policy" / f"{name}.yml").exists()
    assert road.joined(VM) == boot
    assert takes_pods(road)


def new_values(run: Run) -> str:
    """Return what a run printed of the values that no profile allows."""
    return run.output.partition(f'"{VM} shows the values ')[2].partition("\nTASK [")[0]


def refusals(road: HybridRoad) -> str:
    """Return what the key service decided lately."""
    return road.inside(road.plane, "journalctl", "--unit=attested-key-service", "--since=-10min", "--output=cat")


def takes_pods(road: HybridRoad) -> bool:
    node = json.loads(road.kubectl("get", "node", VM, "--output=json"))
    left = [name for name in node["metadata"]["annotations"] if "os-update" in name or "cordoned-by" in name]
    return not node["spec"].get("unschedulable") and not left


def tasks_file(road: HybridRoad, name: str, *tasks: dict[str, object]) -> tuple[str, str]:
    """Write the site's tasks; return the words for them."""
    (road.site / name).write_text(yaml.safe_dump(list(tasks)))
    return ("-e", f"tasks_file={name}")


def copied(*files: Path, mode: str = "0644") -> dict[str, object]:
    """Return the task that copies files of this machine."""
    task = {"src": "{{ item }}", "dest": "/var/tmp/", "mode": mode}
    return {"name": "Copy", "ansible.builtin.copy": task, "loop": [str(one) for one in files]}


@pytest.fixture(scope="module")
def grub(road: HybridRoad, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The site's tasks that install GRUB and enroll the keys, once; the key is the one that secrets makes."""
    folder = tmp_path_factory.mktemp("keys")
    road.play("secrets", *WORDS, "-e", "secure_boot_key=true")
    view = (Path(sys.executable).with_name("ansible-vault"), "view", ".secrets/secure-boot-key.pem")
    (folder / "key").write_bytes(subprocess.run(view, cwd=road.site, check=True, capture_output=True).stdout)
    lists = signed_lists(folder, folder / "key", road.site / "secure-boot.pem")
    program = Path(shutil.which("efi-updatevar") or "efi-updatevar")
    enroll = [f"/var/tmp/{program.name} -f /var/tmp/{one.name} {one.stem}" for one in lists]
    return tasks_file(
        road,
        "grub.yml",
        copied(*lists, program, mode="0755"),
        {"name": "Install GRUB", "ansible.builtin.shell": GRUB},
        {"name": "Enroll the keys", "ansible.builtin.shell": " && ".join(enroll), "args": {"creates": ENROLLED}},
    )


@pytest.fixture(scope="module")
def kernel(road: HybridRoad, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The newest kernel of the archive: a tasks file that installs it, and its release."""
    found = subprocess.run(
        ("apt-cache", "search", "--names-only", "^linux-image-6[.0-9]*[+]deb12-amd64$"), capture_output=True, check=True
    )
    names = [line.split()[0] for line in found.stdout.decode().splitlines()]
    if not names:
        pytest.skip("needs a second kernel in the archive of the distribution")
    name = max(names, key=lambda one: [int(part) for part in re.findall(r"\d+", one)])
    folder = tmp_path_factory.mktemp("kernel")
    subprocess.run(("apt-get", "download", name), cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("*.deb")
    release = name.removeprefix("linux-image-")
    left_out = [f"--path-exclude=/lib/modules/*/kernel/{one}/*" for one in LEFT_OUT]
    argv = ["dpkg", *left_out, "--install", f"/var/tmp/{package.name}"]
    install = {"argv": argv, "creates": f"/boot/vmlinuz-{release}"}
    tasks_file(road, "kernel.yml", copied(package), {"name": "Install it", "ansible.builtin.command": install})
    return "kernel.yml", release


@pytest.mark.usefixtures("took")
def test_the_canary_boots_shim_and_grub_with_secure_boot_and_comes_back_by_approval(
    road: HybridRoad, grub: tuple[str, str]
) -> None:
    run = update(road, *grub, "-e", f"canary={VM}")
    assert run.returncode != 0, run.output[-8000:]
    assert "BOOT_IMAGE=" in road.inside(VM, "cat", "/proc/cmdline")
    assert "SecureBoot" in new_values(run)
    approved(road, run, "grub-1", *grub)


@pytest.mark.usefixtures("took")
def test_a_run_that_is_killed_before_the_reboot_is_continued_by_the_same_command(
    road: HybridRoad, kernel: tuple[str, str]
) -> None:
    """It ends as the canary's run does: the new kernel runs, and what it changed in the log is told event by event."""
    tasks, release = kernel
    words = ("-e", f"tasks_file={tasks}", "-e", f"canary={VM}")
    before = road.boot_id(VM)
    cut_run(road, "os_update", *order(*words, profiles=("grub-1",)), after="Install it")
    assert json.loads(road.kubectl("get", "node", VM, "--output=json"))["spec"]["unschedulable"]
    assert road.boot_id(VM) == before

    run = update(road, *words, profiles=("grub-1",))
    assert run.returncode != 0, run.output[-8000:]
    assert road.inside(VM, "uname", "-r").strip() == release
    assert f"vmlinuz-{release}" in new_values(run)
    approved(road, run, "grub-2", *words[:2], profiles=("grub-1",))


def build(road: HybridRoad, name: str, base: str, release: str) -> Run:
    """Build an image of a kernel on the worker, signed with the site's key, however it ends."""
    given = {
        "attested_boot_reference": VM,
        "attested_boot_command_line": COMMAND_LINE,
        "attested_boot_initrd": f"/boot/initrd.img-{release}",
    }
    words = (*WORDS, "-e", json.dumps(given), "-e", f"image={name}", "-e", f"profile={base}")
    return road.finish("boot_image", road.start("boot_image", *words))


def on_worker(road: HybridRoad, *tasks: dict[str, object]) -> Run:
    """Run tasks on the worker as an admin does, however they end."""
    book = road.site / "by-hand.yml"
    variables = {"ansible_python_interpreter": "/opt/attested/venv/bin/python"}
    play = {"name": "Do it", "hosts": VM, "gather_facts": False, "vars": variables, "tasks": list(tasks)}
    book.write_text(yaml.safe_dump([play]))
    return road.finish(str(book), road.start(str(book), *WORDS))


def installed(road: HybridRoad, name: str, file: str) -> Run:
    """Copy an image of the site to the worker, and make it the next boot."""
    place = f"/var/tmp/{name}.efi"
    copy = {"src": str(road.site / "boot-images" / file), "dest": place}
    module = {"state": "installed", "name": name, "image": place}
    return on_worker(
        road,
        {"name": "Copy the image", "ansible.builtin.copy": copy},
        {"name": "Make it the next boot", "attested.kubernetes.boot_image": module},
    )


@pytest.mark.usefixtures("took")
def test_an_image_that_the_firmware_does_not_trust_is_not_installed(road: HybridRoad, kernel: tuple[str, str]) -> None:
    """Its profile is not computed: PCR 7 says who signed it, which no machine has shown yet."""
    run = build(road, "fleet-1", "grub-2", kernel[1])
    assert (run.returncode != 0, "PREDICTION_INCOMPLETE" in run.output) == (True, True), run.output[-8000:]
    refused = installed(road, "unsigned", "fleet-1.unsigned.efi")
    assert (refused.returncode != 0, "BOOT_IMAGE_UNFIT" in refused.output) == (True, True), refused.output[-8000:]
    assert "BootNext" not in road.inside(VM, "efibootmgr")
