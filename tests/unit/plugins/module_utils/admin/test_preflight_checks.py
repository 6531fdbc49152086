# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a machine from being a node, and what does not: a good machine, changed in one point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.preflight_checks import (
    BootView,
    DiskView,
    Expected,
    Level,
    MachineView,
    Skew,
    StateDisk,
    TpmView,
    judge,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.prerequisites import Machine

BASE = Machine(missing_packages=(), swaps=(), cgroup_version=2, missing_kernel_parts=(), systemd=True)
TPM = TpmView(maker="IFX", sha256_bank=True, certificates=("RSA-2048 (L-1)",), registers={0: bytes(32)})
SEEN = MachineView(
    base=BASE,
    root=True,
    architecture="x86_64",
    python=(3, 11),
    processors=2,
    memory=1700 << 20,
    free={"/opt": 4 << 30, "/var/lib": 4 << 30},
    missing_controllers=(),
    missing_commands=(),
    tpm=TPM,
    boot=BootView(secure_boot=True, lock="unlocked"),
    skew=Skew(least=-30.0, most=0.5),
    remote_tmp_kind="tmpfs",
    taken_ports=(),
    foreign_addresses=(),
    endpoint_resolves=True,
    silent_peers=(),
    prepared=False,
    foreign_kubernetes=(),
)
EXPECTED = Expected(
    node_name="cp-1",
    control_plane=True,
    packages=("containerd",),
    tcti="device:/dev/tpmrm0",
    firmware_log="/log",
    userspace_log="/records",
    node_ip="10.0.0.11",
    endpoint_host="api.prod.example",
    remote_tmp="/dev/shm/x",
    admin_time=0.0,
)
OTHER_EK = {"certificates": (), "other_certificates": ("RSA-3072 (H-6)",)}


def found(seen: dict[str, Any], expected: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (one.level.value, one.check, one.text) for one in judge(replace(SEEN, **seen), replace(EXPECTED, **expected))
    ]


def test_a_good_machine_lacks_nothing():
    assert judge(SEEN, EXPECTED) == ()


@pytest.mark.parametrize(
    ("seen", "check", "words"),
    [
        pytest.param({"root": False}, "root", "another user", id="not root"),
        pytest.param({"python": (3, 10)}, "python", "3.11 or newer, got 3.10", id="an old Python"),
        pytest.param({"python": (3, 13)}, "python", "expected Python 3.11, got 3.13", id="another Python"),
        pytest.param(
            {"architecture": "aarch64"}, "architecture", "expected amd64, got arm64", id="another architecture"
        ),
        pytest.param({"remote_tmp_kind": "ext4"}, "temporary directory", "it is on ext4", id="secrets on a disk"),
        pytest.param({"base": replace(BASE, swaps=("/dev/sda3",))}, "system", "/dev/sda3", id="swap"),
        pytest.param({"base": replace(BASE, cgroup_version=1)}, "system", "found v1", id="cgroup v1"),
        pytest.param({"base": replace(BASE, missing_packages=("nft",))}, "system", "packages nft", id="package"),
        pytest.param({"base": replace(BASE, systemd=False)}, "system", "systemd", id="another init"),
        pytest.param({"base": replace(BASE, missing_kernel_parts=("overlay",))}, "system", "overlay", id="kernel"),
        pytest.param({"missing_controllers": ("memory",)}, "cgroups", "memory", id="controller"),
        pytest.param({"missing_commands": ("nft",)}, "commands", "nft", id="command"),
        pytest.param({"architecture": "riscv64"}, "architecture", "got riscv64", id="architecture"),
        pytest.param({"processors": 1}, "processors", "got 1", id="one processor"),
        pytest.param({"memory": 1 << 30}, "memory", "got 1024", id="little memory"),
        pytest.param({"foreign_kubernetes": ("/etc/x",)}, "kubernetes", "found /etc/x", id="another Kubernetes"),
        pytest.param({"endpoint_resolves": False}, "endpoint", "api.prod.example", id="endpoint without address"),
        pytest.param({"foreign_addresses": ("10.0.0.11",)}, "address", "10.0.0.11", id="foreign address"),
        pytest.param({"taken_ports": (6443,)}, "ports", "6443", id="port taken"),
        pytest.param({"tpm": TpmView(problem="no TPM"), "boot": BootView()}, "tpm", "no TPM", id="no TPM"),
        pytest.param({"tpm": replace(TPM, sha256_bank=False)}, "tpm", "SHA-256", id="no SHA-256 bank"),
        pytest.param({"tpm": replace(TPM, disabled=("owner",))}, "tpm", "off: owner", id="a hierarchy is off"),
        pytest.param({"tpm": replace(TPM, **OTHER_EK)}, "endorsement key", "H-6", id="another kind of EK"),
        pytest.param({"boot": BootView(firmware_problem="no log")}, "event log", "no log", id="no log"),
        pytest.param(
            {"boot": BootView(replay_problem="PCR 4", secure_boot=True)}, "event log", "PCR 4", id="log that lies"
        ),
        pytest.param(
            {"boot": BootView(lock="foreign", lock_why="it is not", secure_boot=True)}, "node lock", "PCR 15", id="lock"
        ),
        pytest.param({"skew": Skew(least=901.0, most=931.0)}, "clock", "901 s ahead", id="clock ahead"),
        pytest.param({"skew": Skew(least=-7231.0, most=-7201.0)}, "clock", "7201 s behind", id="clock behind"),
        pytest.param({"free": {"/var/lib": 1 << 30}}, "disk", "/var/lib, got 1.0", id="full disk"),
    ],
)
def test_one_thing_is_missing_and_named_with_a_next_step(seen: dict[str, Any], check: str, words: str):
    (finding,) = judge(replace(SEEN, **seen), EXPECTED)
    assert (finding.level, finding.check) == (Level.MISSING, check)
    assert words in finding.text
    assert finding.next_step


@pytest.mark.parametrize(
    ("seen", "expected", "level", "words"),
    [
        pytest.param({"tpm": replace(TPM, certificates=())}, {}, "note", "no certificate", id="EK without certificate"),
        pytest.param({"tpm": replace(TPM, passwords=("owner",))}, {}, "note", "owner", id="password of the TPM"),
        pytest.param({"tpm": replace(TPM, in_lockout=True)}, {}, "note", "lockout", id="TPM in lockout"),
        pytest.param({"silent_peers": ("10.0.0.12:22",)}, {}, "note", "10.0.0.12:22", id="a firewall between"),
        pytest.param({"boot": BootView(secure_boot=False)}, {}, "note", "is off", id="Secure Boot off"),
        pytest.param({"boot": BootView(secure_boot=None)}, {}, "note", "is not proven", id="Secure Boot unproven"),
        pytest.param(
            {"boot": BootView(userspace_log=False, secure_boot=True)}, {}, "note", "no log of its", id="older systemd"
        ),
        pytest.param({"skew": Skew(least=61.0, most=91.0)}, {}, "note", "61 s ahead", id="a clock that drifts"),
        pytest.param(
            {"base": replace(BASE, missing_packages=("nft",))},
            {"install_packages": True},
            "note",
            "packages nft",
            id="a package that prepare installs",
        ),
        pytest.param(
            {}, {"pod_security": "privileged"}, "note", "will not be restricted", id="Pod security turned off"
        ),
        pytest.param(
            {}, {"kubelets_checked": False}, "note", "will not be checked", id="kubelets without certificates"
        ),
        pytest.param(
            {"base": replace(BASE, package_manager="")}, {}, "not looked at", "neither dpkg nor rpm", id="no packages"
        ),
        pytest.param({"closed_ports": (6443, 9090)}, {}, "note", "open the ports 6443 9090", id="a firewall"),
        pytest.param({"selinux_enforces": True}, {}, "note", "SELinux enforces", id="SELinux"),
        pytest.param({"boot": BootView(unseen="no yaml")}, {}, "not looked at", "no yaml", id="a library is missing"),
    ],
)
def test_what_keeps_nobody_out(seen: dict[str, Any], expected: dict[str, Any], level: str, words: str):
    ((got, _check, text),) = found(seen, expected)
    assert got == level
    assert words in text


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param({"base": replace(BASE, cgroup_version=1)}, {"allow_cgroup_v1": True}, id="cgroup v1, allowed"),
        pytest.param({"processors": 1}, {"control_plane": False}, id="one processor of a worker"),
        pytest.param({"processors": 1}, {"ignored_errors": frozenset({"NumCPU"})}, id="one processor, ignored"),
        pytest.param({"memory": 1 << 30}, {"ignored_errors": frozenset({"Mem"})}, id="little memory, ignored"),
        pytest.param({"taken_ports": (9091,), "prepared": True}, {}, id="ports of our own services"),
        pytest.param({"foreign_kubernetes": ("/x",), "prepared": True}, {}, id="our own Kubernetes"),
        pytest.param({"skew": Skew(least=-20.0, most=10.0)}, {}, id="a clock that may be right"),
    ],
)
def test_what_is_no_finding(seen: dict[str, Any], expected: dict[str, Any]):
    assert found(seen, expected) == []


def test_a_name_that_kubernetes_does_not_take_is_missing():
    assert found({}, {"node_name": "CP_1"})[0][:2] == ("missing", "name")


def test_everything_is_listed_at_once_and_what_keeps_out_comes_first():
    levels = [
        one[0] for one in found({"silent_peers": ("x:22",), "root": False, "foreign_addresses": ("10.0.0.11",)}, {})
    ]
    assert levels == ["missing", "missing", "note"]


DEVICE = "/dev/disk/by-id/nvme-eui.0025"
GIBIBYTE = 1 << 30
WANTED = StateDisk(device=DEVICE, minimum_bytes=16 * GIBIBYTE)
DISK = DiskView(size_bytes=16 * GIBIBYTE, cryptsetup=(2, 6))
WORKER = replace(EXPECTED, control_plane=False, state_disk=WANTED)


@pytest.mark.parametrize(
    "disk",
    [
        pytest.param(DISK, id="an empty one"),
        pytest.param(replace(DISK, cryptsetup=(2, 10)), id="a newer cryptsetup"),
        pytest.param(replace(DISK, ours=True, contents="crypto_LUKS at 0"), id="one of ours"),
    ],
)
def test_a_good_disk_lacks_nothing(disk: DiskView):
    assert judge(replace(SEEN, disk=disk), WORKER) == ()


@pytest.mark.parametrize(
    ("changed", "check", "words"),
    [
        pytest.param({"cryptsetup": (2, 5)}, "cryptsetup", "2.6 or newer, got 2.5", id="an old cryptsetup"),
        pytest.param({"cryptsetup": None}, "cryptsetup", "is missing", id="no cryptsetup"),
        pytest.param({"present": False}, "state disk", "STATE_DISK_MISSING", id="no disk"),
        pytest.param(
            {"problem": "a name (STATE_DISK_OPTION)"}, "state disk", "a name (STATE_DISK_OPTION)", id="not by its id"
        ),
        pytest.param({"users": ("a mount",)}, "state disk", "STATE_DISK_BUSY", id="in use"),
        pytest.param({"size_bytes": 16 * GIBIBYTE - 1}, "state disk", "STATE_DISK_TOO_SMALL", id="too small"),
        pytest.param({"contents": "ext4 at 1080"}, "state disk", "found ext4 at 1080 (STATE_DISK_OCC", id="occupied"),
    ],
)
def test_a_disk_that_would_be_refused_is_told_before(changed: dict[str, Any], check: str, words: str):
    (finding,) = judge(replace(SEEN, disk=replace(DISK, **changed)), WORKER)
    assert (finding.level, finding.check) == (Level.MISSING, check)
    assert words in finding.text
    assert finding.next_step


@pytest.mark.parametrize(
    ("erase", "words"),
    [
        pytest.param("nvme-eui.0025", "", id="its own name lets what is on it go"),
        pytest.param(
            "nvme-eui.0026", "as the disk to erase, got 'nvme-eui.0026' (STATE_DISK_OPTION)", id="another's name"
        ),
    ],
)
def test_what_is_on_a_disk_goes_where_its_name_is_repeated(erase: str, words: str):
    occupied = replace(SEEN, disk=replace(DISK, contents="ext4 at 1080"))
    found_texts = [one.text for one in judge(occupied, replace(WORKER, state_disk=replace(WANTED, erase=erase)))]
    assert bool(found_texts) is bool(words)
    assert all(words in text for text in found_texts)


def test_a_missing_package_is_not_told_twice():
    seen = replace(SEEN, base=replace(BASE, missing_packages=("cryptsetup-bin",)), disk=replace(DISK, cryptsetup=None))
    assert [one.check for one in judge(seen, WORKER)] == ["system"]
