# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is seen of one machine, and what the site expects of it. Plain data."""

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

    ``erase`` repeats the last part of its path where what is on it may go, else "".
    """

    device: str
    minimum_bytes: int
    erase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskView:
    """That disk as it was found, and the cryptsetup that would open it.

    ``problem`` says why it could not be read. ``ours``: our label is on it, or our volume of it is open. ``contents``
    says what else is on it, "" for nothing. ``cryptsetup`` is its version, None where there is none.
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
    """What the site says of the machine.

    ``ports`` have to be free; ``peers`` are host:port of other machines that have to answer, be it by a refusal;
    ``admin_time`` is the admin's clock when the module was sent, in seconds since 1970. ``pod_security`` is what Pods
    will be held to; ``kubelets_checked``: API servers will demand that kubelets serve with the cluster's certificates.
    ``python_version`` is the one that the bundle has wheels for.
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
    pod_security: str = BASELINE
    kubelets_checked: bool = True
    ignored_errors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmView:
    """A TPM as it shows itself to anybody who may open it; ``problem`` says why it could not be read.

    ``certificates`` and ``other_certificates`` name endorsement keys that we use, and those that we do not.
    ``registers`` are those of the SHA-256 bank, 32 bytes each; empty where there is no such bank. ``disabled`` names
    hierarchies that are off; ``in_lockout``: it takes no password of a protected object.
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
    """The logs of this boot, held against the registers.

    ``secure_boot`` is None where the log does not prove it. ``lock`` is the reading of the node lock's register, empty
    where it was not read. ``unseen`` says what could not be looked at on this machine, and why.
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
    """How far the machine's clock is ahead of the admin's, in seconds: somewhere from ``least`` to ``most``."""

    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """Everything that was seen. Sizes are bytes, ``memory`` 0 where it is not known.

    ``base`` is what prepare looks at, its packages only where ``has_dpkg``. ``disk`` is there where the site names one.
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
