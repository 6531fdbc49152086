# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the observed state of a machine; each finding has a next step. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ..bundle.prerequisites import findings_of
from ..bundle.store import this_architecture
from ..disk.paths import CRYPTSETUP
from ..disk.plan import BY_ID
from ..kubeadm.spec import BASELINE, PRIVILEGED, address_problems, is_node_name
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..bundle.prerequisites import Machine


# The observed state of one machine, and what the site expects of it. Plain data.


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDisk:
    """The disk that the site names for the machine's state.

    ``erase`` repeats the last part of its path if its content may be erased, else "".
    """

    device: str
    minimum_bytes: int
    erase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskView:
    """The observed state of the disk, and the installed cryptsetup.

    ``problem`` says why it could not be read. ``ours``: it has the label of a state disk, or its volume is open.
    ``contents`` names other content, "" for none. ``cryptsetup`` is the version, None if it is not installed.
    """

    problem: str = ""
    present: bool = True
    size_bytes: int = 0
    users: tuple[str, ...] = ()
    ours: bool = False
    contents: str = ""
    cryptsetup: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the site expects of the machine.

    ``ports`` must be free. ``peers`` are host:port of other machines that must answer, if only by a refused connection.
    ``admin_time`` is the admin's clock when the module was sent, in seconds since 1970. ``pod_security`` is the level
    that is enforced for Pods. ``kubelets_checked``: API servers will require that kubelets serve with the cluster's
    certificates. ``python_version`` and ``architecture`` (amd64 or arm64) are those of
    the bundle's wheels and programs.
    """

    node_name: str
    control_plane: bool
    packages: tuple[str, ...]
    tcti: str
    firmware_log: str
    userspace_log: str
    node_ip: str
    endpoint_host: str
    remote_tmp: str
    admin_time: float
    second_node_ip: str = ""
    pod_subnet: str = "10.244.0.0/16"
    service_subnet: str = "10.96.0.0/16"
    ports: tuple[int, ...] = ()
    peers: tuple[str, ...] = ()
    install_packages: bool = False
    allow_cgroup_v1: bool = False
    state_disk: StateDisk | None = None
    python_version: str = "3.11"
    architecture: str = "amd64"
    pod_security: str = BASELINE
    kubelets_checked: bool = True
    ignored_errors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmView:
    """The public state of a TPM; ``problem`` says why it could not be read.

    ``certificates`` and ``other_certificates`` name the supported and the unsupported endorsement keys with a
    certificate. ``registers`` are those of the SHA-256 bank, 32 bytes each, empty without the bank. ``disabled`` names
    hierarchies that are off. ``in_lockout``: it accepts no password of a protected object.
    """

    problem: str = ""
    maker: str = ""
    sha256_bank: bool = False
    certificates: tuple[str, ...] = ()
    other_certificates: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    in_lockout: bool = False
    registers: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootView:
    """The logs of this boot, compared with the registers.

    ``secure_boot`` is None if the log does not prove it. ``lock`` is the state of the node lock, empty if its register
    was not read. ``unseen`` says what could not be checked on this machine, and why.
    """

    firmware_problem: str = ""
    replay_problem: str = ""
    userspace_log: bool = True
    secure_boot: bool | None = None
    lock: str = ""
    lock_why: str = ""
    unseen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How far the machine's clock is ahead of the admin's, in seconds: between ``least`` and ``most``."""

    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """The observed state. Sizes are bytes; ``memory`` is 0 if it is not known.

    ``base`` is what prepare checks. ``disk`` is set if the site names a disk. ``closed_ports`` are those that a running
    firewalld does not open. ``selinux_enforces``: SELinux is on and not only permissive.
    """

    base: Machine
    root: bool
    architecture: str
    python: tuple[int, int]
    processors: int
    memory: int
    free: Mapping[str, int]
    missing_controllers: tuple[str, ...]
    missing_commands: tuple[str, ...]
    tpm: TpmView
    boot: BootView
    skew: Skew
    remote_tmp_kind: str
    taken_ports: tuple[int, ...]
    foreign_addresses: tuple[str, ...]
    endpoint_resolves: bool
    silent_peers: tuple[str, ...]
    prepared: bool
    foreign_kubernetes: tuple[str, ...]
    disk: DiskView | None = None
    closed_ports: tuple[int, ...] = ()
    selinux_enforces: bool = False


PYTHON = (3, 11)
ARCHITECTURES = ("x86_64", "aarch64")
_PROCESSORS = 2
_MEMORY = 1700 << 20  # kubeadm's minimum for a control plane
_MOST_AHEAD = 15 * 60  # docs/protocol/asking.md: with more a machine cannot join
_MOST_BEHIND = 2 * 3600
_WORTH_SAYING = 60
_FREE = 4 << 30  # programs and images unpacked are about 2 GiB; the kubelet evicts below a tenth
_DISK = "state disk"
_MEMORY_KINDS = frozenset({"tmpfs", "ramfs"})


class Level(Enum):
    """The severity of a finding: with a MISSING one the machine cannot be a node."""

    MISSING = "missing"
    NOTE = "note"
    UNSEEN = "not looked at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about a machine: what was expected and what came, and what to do next."""

    level: Level
    check: str
    text: str
    next_step: str

    def as_row(self) -> dict[str, str]:
        """Return plain values for a module's result."""
        return {"level": self.level.value, "check": self.check, "text": self.text, "next_step": self.next_step}


def judge(seen: MachineView, expected: Expected) -> tuple[Finding, ...]:
    """Return all findings, first those that prevent the machine from being a node; raises nothing."""
    checks = (_access, _base, _machine, _names, _network, _protection, _tpm, _boot, _clock, _room, _state_disk, _guards)
    found = [finding for check in checks for finding in check(seen, expected)]
    order = list(Level)
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


def _missing(check: str, text: str, next_step: str) -> Finding:
    return Finding(level=Level.MISSING, check=check, text=text, next_step=next_step)


def _note(check: str, text: str, next_step: str) -> Finding:
    return Finding(level=Level.NOTE, check=check, text=text, next_step=next_step)


def _access(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    if not seen.root:
        yield _missing("root", "expected to be root, it is another user", "Set ansible_become: true in group_vars.")
    got = ".".join(map(str, seen.python))
    if seen.python < PYTHON:
        step = "Install a newer one and name it in ansible_python_interpreter, or use Debian 12 or newer."
        yield _missing("python", f"expected Python 3.11 or newer, got {got}", step)
    elif got != expected.python_version:
        yield _missing(
            "python",
            f"expected Python {expected.python_version}, got {got}",
            f'Set attested_python_version: "{got}" for this machine, then run bundle.',
        )
    if seen.remote_tmp_kind not in _MEMORY_KINDS:
        yield _missing(
            "temporary directory",
            f"expected {expected.remote_tmp} in memory, it is on {seen.remote_tmp_kind}",
            "Set ansible_remote_tmp: /dev/shm/.ansible-admin in group_vars.",
        )


def _base(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    for text in findings_of(seen.base, allow_cgroup_v1=expected.allow_cgroup_v1):
        packages = "packages" in text.split()
        if packages and expected.install_packages:
            yield _note("system", text, "Nothing: prepare installs them.")
        else:
            step = "Install them, or set attested_install_packages: true." if packages else "Repair it on the machine."
            yield _missing("system", text, step)
    if not seen.base.package_manager:
        text, step = "packages: there is neither dpkg nor rpm", "Only Debian is supported; see docs/limitations.md."
        yield Finding(level=Level.UNSEEN, check="system", text=text, next_step=step)
    if seen.missing_controllers:
        names = " ".join(seen.missing_controllers)
        yield _missing(
            "cgroups", f"expected the controllers {names}, the kernel lacks them", "Enable them on its command line."
        )
    if seen.missing_commands and not seen.base.missing_packages:
        names = " ".join(seen.missing_commands)
        yield _missing("commands", f"expected the commands {names}, they are missing", "Install their packages.")


def _machine(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    if seen.architecture not in ARCHITECTURES:
        got = seen.architecture
        yield _missing("architecture", f"expected {' or '.join(ARCHITECTURES)}, got {got}", "Use another machine.")
    elif (own := this_architecture(seen.architecture).value) != expected.architecture:
        step = f"Set attested_bundle_architecture: {own} and an attested_bundle of its own for this machine"
        yield _missing("architecture", f"expected {expected.architecture}, got {own}", f"{step}, then run bundle.")
    step = "Give it more, or name the check in attested_ignore_preflight_errors."
    if seen.processors < _PROCESSORS and expected.control_plane and "NumCPU" not in expected.ignored_errors:
        yield _missing("processors", f"expected {_PROCESSORS} of a control plane, got {seen.processors}", step)
    if 0 < seen.memory < _MEMORY and expected.control_plane and "Mem" not in expected.ignored_errors:
        text = f"expected {_MEMORY >> 20} MiB of a control plane, got {seen.memory >> 20}"
        yield _missing("memory", text, step)
    if seen.foreign_kubernetes and not seen.prepared:
        names = " ".join(seen.foreign_kubernetes)
        yield _missing(
            "kubernetes", f"expected no other Kubernetes, found {names}", "Run kubeadm reset there, or reinstall it."
        )


def _names(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    if not is_node_name(expected.node_name):
        yield _missing(
            "name", f"expected a lower-case DNS name, got {expected.node_name!r}", "Rename the host in hosts.yml."
        )
    if not seen.endpoint_resolves:
        yield _missing(
            "endpoint",
            f"expected {expected.endpoint_host} to have an address, the machine finds none",
            "Add it to your DNS, or to /etc/hosts of the machine.",
        )


def _network(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    networks = expected.pod_subnet, expected.service_subnet
    for problem in address_problems(*networks, expected.node_ip, expected.second_node_ip):
        yield _missing(
            "address",
            problem,
            "Correct attested_pod_subnet, attested_service_subnet, attested_node_ip or attested_second_node_ip.",
        )
    for address in seen.foreign_addresses:
        yield _missing(
            "address",
            f"expected {address} to be an address of the machine, it is not",
            "Set attested_node_ip in host_vars, in a cluster with IPv4 and IPv6 also attested_second_node_ip: the "
            "addresses by which the nodes reach each other.",
        )
    if seen.taken_ports and not seen.prepared:
        ports = " ".join(map(str, seen.taken_ports))
        yield _missing(
            "ports", f"expected the ports {ports} to be free, they are taken", "See ss -ltnp and docs/ports.md."
        )
    if seen.silent_peers:
        names = " ".join(seen.silent_peers)
        yield _note(
            "network", f"expected an answer of {names}, none came", "Open the ports of docs/ports.md between them."
        )


def _protection(seen: MachineView, _expected: Expected) -> Iterator[Finding]:
    if seen.closed_ports:
        ports = " ".join(map(str, seen.closed_ports))
        options = " ".join(f"--add-port={port}/tcp" for port in seen.closed_ports)
        yield _note(
            "firewall",
            f"firewalld runs, and its default zone does not open the ports {ports}",
            f"Unless another rule opens them: firewall-cmd --permanent {options} && firewall-cmd --reload. Pods and "
            "Services need more: see docs/ports.md.",
        )
    if seen.selinux_enforces:
        yield _note(
            "selinux",
            "SELinux enforces its policy, with which nodes were never tested",
            "Test one machine first, with permissive mode (setenforce 0), and read ausearch -m avc.",
        )


def _tpm(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    tpm = seen.tpm
    if tpm.problem:
        yield _missing("tpm", tpm.problem, f"Enable the TPM 2.0 in the firmware; attested_tcti is {expected.tcti}.")
        return
    if tpm.disabled:
        text = f"expected owner and endorsement hierarchy enabled, off: {', '.join(tpm.disabled)}"
        yield _missing("tpm", f"{text} ({Reason.TPM_HIERARCHY_DISABLED.name})", "Enable it in the firmware; reboot.")
    if not tpm.sha256_bank:
        yield _missing(
            "tpm",
            f"expected an active SHA-256 bank, it has none ({Reason.TPM_PCR_UNAVAILABLE.name})",
            "Activate it in the firmware, or by tpm2_pcrallocate.",
        )
    if tpm.other_certificates and not tpm.certificates:
        names = ", ".join(tpm.other_certificates)
        yield _missing(
            "endorsement key",
            f"expected a certificate for RSA-2048 (L-1) or ECC P-256 (L-2), it has {names}",
            "Only those two templates are supported.",
        )
    elif not tpm.certificates:
        step = "Enroll it by its key: attested_insecure_first_use, or a delivery list."
        yield _note("endorsement key", "the TPM has no certificate for it", step)
    if tpm.passwords:
        step = "Set attested_tpm_owner_auth and attested_tpm_endorsement_auth (module tpm_authorization)."
        yield _note("tpm", f"a password is set for: {', '.join(tpm.passwords)}", step)
    if tpm.in_lockout:
        step = "Nothing for a node. Find the program that tries them, then run tpm2_dictionarylockout --clear-lockout."
        yield _note("tpm", f"in lockout after wrong passwords of its objects ({Reason.TPM_LOCKOUT.name})", step)


def _boot(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    boot = seen.boot
    if seen.tpm.problem:
        return  # without registers no log can be compared
    if boot.unseen:
        yield Finding(
            level=Level.UNSEEN, check="boot", text=boot.unseen, next_step="Run prepare, then preflight again."
        )
    if boot.firmware_problem:
        step = f"Boot by UEFI with the TPM enabled; attested_firmware_log is {expected.firmware_log}."
        yield _missing("event log", boot.firmware_problem, step)
        return
    if boot.replay_problem:
        yield _missing(
            "event log", boot.replay_problem, "Reboot it; if the problem stays, its firmware's log is not usable."
        )
    if boot.lock == "foreign":
        yield _missing("node lock", f"expected PCR 15 to be unused, {boot.lock_why}", "Reboot it.")
    if not boot.userspace_log:
        step = f"Nothing, before systemd 255; attested_userspace_log is {expected.userspace_log}."
        yield _note("event log", "systemd wrote no log of its measurements", step)
    if boot.secure_boot is not True and not boot.unseen:
        state = "is off" if boot.secure_boot is False else "is not proven by the log"
        yield _note("secure boot", f"Secure Boot {state}", "Nothing, if its profile may allow that.")


def _clock(seen: MachineView, _expected: Expected) -> Iterator[Finding]:
    ahead, behind = seen.skew.least, -seen.skew.most
    worst = max(ahead, behind)
    if worst <= _WORTH_SAYING:
        return
    text = f"expected the admin's time, its clock is {worst:.0f} s {'ahead' if ahead > behind else 'behind'}"
    keeps_out = ahead > _MOST_AHEAD or behind > _MOST_BEHIND
    yield (_missing if keeps_out else _note)("clock", text, "Set it: timedatectl set-ntp true.")


def _room(seen: MachineView, _expected: Expected) -> Iterator[Finding]:
    for place, free in seen.free.items():
        if free < _FREE and not seen.prepared:
            text = f"expected {_FREE >> 30} GiB free on {place}, got {free / (1 << 30):.1f}"
            yield _missing("disk", text, "Make room.")


def _state_disk(seen: MachineView, expected: Expected) -> Iterator[Finding]:
    wanted, disk = expected.state_disk, seen.disk
    if wanted is None or disk is None:
        return
    if disk.cryptsetup is not None and disk.cryptsetup < CRYPTSETUP:
        versions = [".".join(map(str, one)) for one in (CRYPTSETUP, disk.cryptsetup)]
        text = f"expected cryptsetup {versions[0]} or newer, got {versions[1]}"
        yield _missing("cryptsetup", text, "Use Debian 12 or newer.")
    if disk.cryptsetup is None and not seen.base.missing_packages:
        yield _missing("cryptsetup", "expected the command cryptsetup, it is missing", "Install cryptsetup-bin.")
    if wanted.erase and f"{BY_ID}{wanted.erase}" != wanted.device:
        name = wanted.device.removeprefix(BY_ID)
        text = f"expected {name!r} as the disk to erase, got {wanted.erase!r} ({Reason.STATE_DISK_OPTION.name})"
        yield _missing(_DISK, text, "Correct attested_state_disk_erase, or remove it.")
    yield from _found_disk(disk, wanted)


def _guards(_seen: MachineView, expected: Expected) -> Iterator[Finding]:
    if expected.pod_security == PRIVILEGED:
        text = f"Pods will not be restricted (attested_pod_security: {PRIVILEGED}): a Pod can take over its node"
        yield _note(
            "pod security",
            text,
            "Set it to baseline, and list the namespaces that need more in attested_exempt_namespaces.",
        )
    if not expected.kubelets_checked:
        text = "kubelets' serving certificates will not be checked (attested_kubelet_serving_certificates: false)"
        yield _note(
            "kubelet",
            text,
            "Remove the variable before init: any machine that answers at a node's address can read exec sessions.",
        )


def _found_disk(disk: DiskView, wanted: StateDisk) -> Iterator[Finding]:
    """Return what would make the step that opens the disk fail, each finding with the code of that failure."""
    if disk.problem:
        yield _missing(_DISK, disk.problem, "Look below /dev/disk/by-id, and correct attested_state_disk.")
        return
    if not disk.present:
        text = f"expected a disk at {wanted.device}, found none ({Reason.STATE_DISK_MISSING.name})"
        yield _missing(_DISK, text, "Look below /dev/disk/by-id, and correct attested_state_disk.")
        return
    if disk.users:
        names = ", ".join(disk.users)
        text = f"expected {wanted.device} unused, it is used by {names} ({Reason.STATE_DISK_BUSY.name})"
        yield _missing(_DISK, text, "Unmount it or remove it from its user, or name another disk.")
    if disk.size_bytes < wanted.minimum_bytes:
        sizes = f"{wanted.minimum_bytes} bytes, it has {disk.size_bytes}"
        text = f"expected {wanted.device} with at least {sizes} ({Reason.STATE_DISK_TOO_SMALL.name})"
        yield _missing(_DISK, text, "Name a larger disk, or set attested_state_disk_minimum_bytes.")
    if disk.contents and not disk.ours and not wanted.erase:
        text = (
            f"expected {wanted.device} empty or a state disk, found {disk.contents} ({Reason.STATE_DISK_OCCUPIED.name})"
        )
        yield _missing(_DISK, text, "Save its data, and name it in attested_state_disk_erase.")
