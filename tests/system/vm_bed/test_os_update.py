# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine that is a worker gets the next kernel by `os_update`, and is never rebooted into a refusal.

Its control plane is a container. The next kernel is a package of the distribution's archive, the firmware is real, and
so are the boot entries, the image that is built on the machine, its profile and the policy. In the order of one lab's
life; what each scene took is printed, and fails nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
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
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.road import Run

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_VM_OS_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab whose worker has joined; it is used and left."""

WORDS = ("-e", '{"lab_bootstrapper": true, "lab_workers": 0, "lab_vm_workers": 1}')
PATIENCE = {"attested_boot_seconds": 2400, "attested_upgrade_drain_force": True}
BEFORE, NEXT = "lab-vm", "fleet-2"
LEFT_OUT = ("sound", *(f"drivers/{name}" for name in ("gpu", "media", "infiniband", "net/wireless", "staging")))
PARTITION = """
mkdir -p /boot/efi
grep -q /boot/efi /etc/fstab || echo '/dev/vda1 /boot/efi vfat umask=0077 0 2' >> /etc/fstab
mountpoint -q /boot/efi || mount /boot/efi
mountpoint -q /sys/firmware/efi/efivars || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "drained"},
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": VM},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "one",
                "image": "localhost/attested-tour:1",
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sleep", "1000000"],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def road() -> Iterator[HybridRoad]:
    """A cluster of one control plane, and a virtual machine that is its worker."""
    with hybrid_road("lab", "init", of="attested-osupdate:127.93.0", instead=USED_LAB, words=WORDS, disks=()) as one:
        one.joined(VM)
        one.inside(VM, "sh", "-euc", PARTITION)
        yield one


def update(road: HybridRoad, *words: str, profiles: tuple[str, ...] = (BEFORE,)) -> Run:
    """Run the playbook on the worker, however it ends."""
    given = {**PATIENCE, "attested_profiles": ["lab", *profiles]}
    return road.finish(
        "os_update", road.start("os_update", *WORDS, "-e", json.dumps(given), "--limit", f"{VM},cp-1", *words)
    )


def apply_policy(road: HybridRoad, *profiles: str) -> None:
    road.play("policy", *WORDS, "-e", json.dumps({"attested_profiles": ["lab", *profiles]}))


def takes_pods(road: HybridRoad) -> bool:
    node = json.loads(road.kubectl("get", "node", VM, "--output=json"))
    left = [name for name in node["metadata"]["annotations"] if "os-update" in name or "cordoned-by" in name]
    return not node["spec"].get("unschedulable") and not left


def tasks_file(road: HybridRoad, name: str, *tasks: dict[str, object]) -> tuple[str, str]:
    """Write the site's tasks; return the words for them."""
    (road.site / name).write_text(yaml.safe_dump(list(tasks)))
    return ("-e", f"tasks_file={name}")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest kernel of the archive that is not the machine's."""
    found = subprocess.run(
        ("apt-cache", "search", "--names-only", "^linux-image-6[.0-9]*[+]deb12-amd64$"), capture_output=True, check=True
    )
    names = [line.split()[0] for line in found.stdout.decode().splitlines()]
    if not names:
        pytest.skip("needs a second kernel in the archive of the distribution")
    name = max(names, key=lambda one: [int(part) for part in re.findall(r"\d+", one)])
    folder = tmp_path_factory.mktemp("kernel")
    subprocess.run(("apt-get", "download", name), cwd=folder, check=True, capture_output=True)
    (file,) = folder.glob("*.deb")
    return file


@pytest.mark.usefixtures("took")
def test_the_sites_tasks_run_and_the_worker_comes_back_with_the_next_kernel_installed(
    road: HybridRoad, package: Path
) -> None:
    """It still boots the image of the lab, which its profile allows; the kernel only lies in /boot."""
    road.kubectl("apply", "-f", "-", given=json.dumps(POD).encode())
    road.kubectl("wait", "--for=condition=Ready", "--timeout=600s", "pod/drained")
    before = road.boot_id(VM)
    left_out = [f"--path-exclude=/lib/modules/*/kernel/{name}/*" for name in LEFT_OUT]
    words = tasks_file(
        road,
        "kernel.yml",
        {"name": "Copy the package", "ansible.builtin.copy": {"src": str(package), "dest": "/var/tmp/kernel.deb"}},
        {
            "name": "Install the package",
            "ansible.builtin.command": {
                "argv": ["dpkg", *left_out, "--install", "/var/tmp/kernel.deb"],
                "creates": f"/boot/vmlinuz-{release_of(package)}",
            },
        },
    )
    run = update(road, *words, "--limit", VM)
    assert run.returncode == 0, run.output[-8000:]
    assert road.boot_id(VM) != before
    assert release_of(package) not in road.inside(VM, "uname", "-r")
    assert takes_pods(road)
    assert "drained" not in road.kubectl("get", "pods", "--output=name")


def release_of(package: Path) -> str:
    return package.name.partition("_")[0].removeprefix("linux-image-")


@pytest.mark.usefixtures("took")
def test_an_image_of_the_next_kernel_is_refused_before_its_profile_is_in_force(road: HybridRoad, package: Path) -> None:
    """Built on the machine, its profile computed; the node is neither drained nor rebooted, nothing is installed."""
    given = {
        "attested_boot_reference": VM,
        "attested_boot_command_line": COMMAND_LINE,
        "attested_boot_initrd": f"/boot/initrd.img-{release_of(package)}",
    }
    road.play("boot_image", *WORDS, "-e", json.dumps(given), "-e", f"image={NEXT}", "-e", f"profile={BEFORE}")
    assert (road.site / "policy" / f"{NEXT}.yml").exists()
    before = road.boot_id(VM)
    run = update(road, "-e", f"image={NEXT}", "--limit", VM)
    assert (run.returncode != 0, "NEXT_BOOT_REFUSED" in run.output) == (True, True), run.output[-8000:]
    named = update(road, "-e", f"image={NEXT}", "--limit", VM, profiles=(BEFORE, NEXT))
    assert "expected the site's policy in force" in named.output, named.output[-8000:]
    assert road.boot_id(VM) == before
    assert road.inside(VM, "find", "/boot/efi/EFI/Linux", check=False) == ""
    road.kubectl("annotate", "node", VM, "attested-kubernetes.dev/os-update-")
    assert takes_pods(road)


@pytest.mark.usefixtures("took")
def test_with_its_profile_in_force_the_worker_gets_the_next_kernel(road: HybridRoad, package: Path) -> None:
    apply_policy(road, BEFORE, NEXT)
    run = update(road, "-e", f"image={NEXT}", "--limit", VM, profiles=(BEFORE, NEXT))
    assert run.returncode == 0, run.output[-8000:]
    assert road.inside(VM, "uname", "-r").strip() == release_of(package)
    assert takes_pods(road)
    again = update(road, "-e", f"image={NEXT}", "--limit", VM, profiles=(BEFORE, NEXT))
    assert (again.returncode, again.changes()[VM]) == (0, 0), again.output[-8000:]


@pytest.mark.usefixtures("took")
def test_after_its_retirement_the_image_of_before_is_refused(road: HybridRoad) -> None:
    """The old entry is booted by hand, as a person could; the next boot is the image again."""
    order = json.dumps({"site": str(road.site), "name": BEFORE, "state": "retired"})
    retire = road.site / "retire.yml"
    retire.write_text(
        yaml.safe_dump(
            [
                {
                    "name": "Retire the profile",
                    "hosts": "localhost",
                    "gather_facts": False,
                    "tasks": [{"name": "Retire it", "attested.kubernetes.measurement_profile": json.loads(order)}],
                }
            ]
        )
    )
    road.play(str(retire))
    apply_policy(road, NEXT, BEFORE)
    found = re.search(r"^Boot([0-9A-F]{4})\* UEFI Misc Device", road.inside(VM, "efibootmgr"), re.MULTILINE)
    assert found
    road.inside(VM, "efibootmgr", "--bootnext", found[1])
    road.reboot(VM)
    wait_for(lambda: "PCR_MISMATCH" in refusals(road), seconds=SECONDS)
    assert not road.is_active(VM, "kubelet")
    road.reboot(VM)
    road.joined(VM)


def refusals(road: HybridRoad) -> str:
    """Return what the key service decided lately."""
    return road.inside("cp-1", "journalctl", "--unit=attested-key-service", "--since=-10min", "--output=cat")
