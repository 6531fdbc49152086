# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observed state of one machine, and what the site expects of it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..kubeadm.pod_security import BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..bundle.prerequisites import Machine


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

    ``base`` is what prepare checks, with packages only if ``has_dpkg``. ``disk`` is set if the site names a disk.
    """

    base: Machine
    has_dpkg: bool
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
    has_node_ip: bool
    endpoint_resolves: bool
    silent_peers: tuple[str, ...]
    prepared: bool
    foreign_kubernetes: tuple[str, ...]
    disk: DiskView | None = None
