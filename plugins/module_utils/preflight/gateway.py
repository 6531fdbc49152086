# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a machine and changes nothing on it: what `judge` decides over."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..components import Machine, MachineReader
from ..errors import AttestedError, SystemFault
from ..reasons import Reason
from ..statedisk import KERNEL_PARTS
from ..system import SystemRunner, mount_kind
from ..tpm import ALG_SHA256, NV_EK_CERTIFICATES, NV_EK_OTHER, PCR_COUNT, TpmProperties, open_tpm
from .boot import read_boot_view
from .disk import read_disk_view
from .facts import BootView, DiskView, MachineView, Skew, TpmView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..system import Clock, Runner
    from .facts import Expected

COMMANDS = ("conntrack", "containerd", "ip", "iptables", "modprobe", "nft", "systemctl", "sysctl")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
_PLACES = ("/opt", "/var/lib")
_LISTENING = "0A"
_KUBERNETES = ("etc/kubernetes/kubelet.conf", "etc/kubernetes/admin.conf", "var/lib/etcd/member")
_ANSWER_SECONDS = 3.0
_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReader:
    """Observes a machine; ``root`` replaces ``/`` in tests, but for the TPM and its logs, whose paths are whole."""

    runner: Runner
    clock: Clock
    root: Path = Path("/")

    def observe(self, expected: Expected) -> MachineView:
        """Look at everything once; what cannot be read is part of the view, so this raises nothing of a machine."""
        now = self.clock.now().timestamp()
        base, has_dpkg = self._base(expected.packages, KERNEL_PARTS if expected.state_disk else ())
        tpm = self._tpm(expected.tcti)
        return MachineView(
            base=base,
            has_dpkg=has_dpkg,
            root=os.geteuid() == 0,
            architecture=platform.machine(),
            python=sys.version_info[:2],
            processors=os.cpu_count() or 1,
            memory=self._memory(),
            free={place: shutil.disk_usage(_existing(self.root / place.lstrip("/"))).free for place in _PLACES},
            missing_controllers=self._missing_controllers(base.cgroup_version),
            missing_commands=tuple(name for name in COMMANDS if shutil.which(name, path=_PATH) is None),
            tpm=tpm,
            boot=BootView() if tpm.problem else self._boot(expected, tpm),
            # the admin's time was taken before the module was sent: how long that took is not known
            skew=Skew(least=now - expected.admin_time - self._longest_way(), most=now - expected.admin_time),
            remote_tmp_kind=mount_kind(_existing(Path(expected.remote_tmp))),
            taken_ports=tuple(sorted(set(expected.ports) & self._listening())),
            has_node_ip=_is_own(expected.node_ip),
            endpoint_resolves=_resolves(expected.endpoint_host),
            silent_peers=_silent(expected.peers),
            prepared=(self.root / "etc/attested/node.yml").exists(),
            foreign_kubernetes=tuple(f"/{name}" for name in _KUBERNETES if (self.root / name).exists()),
            disk=self._disk(expected),
        )

    @staticmethod
    def _longest_way() -> float:
        return 30.0  # a slow connection and an old machine; less than what is worth a word

    def _disk(self, expected: Expected) -> DiskView | None:
        if expected.state_disk is None:
            return None
        return read_disk_view(expected.state_disk.device, runner=self.runner, follower=SystemRunner())

    def _base(self, packages: Sequence[str], kernel_parts: Sequence[str]) -> tuple[Machine, bool]:
        """Return what prepare looks at, and whether its packages could be asked for."""
        reader = MachineReader(runner=self.runner, root=self.root)
        try:
            return reader.observe(packages, kernel_parts=kernel_parts), True
        except SystemFault as error:
            if error.reason is not Reason.COMMAND_MISSING:
                raise
            return reader.observe((), kernel_parts=kernel_parts), False

    def _memory(self) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (self.root / "proc/meminfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) << 10
        return 0

    def _missing_controllers(self, cgroup_version: int) -> tuple[str, ...]:
        if cgroup_version == 1:
            there = _text(self.root / "proc/cgroups").splitlines()
            enabled = {line.split()[0] for line in there if line.split()[-1:] == ["1"]}
        else:
            enabled = set(_text(self.root / "sys/fs/cgroup/cgroup.controllers").split())
        return tuple(name for name in _CONTROLLERS if name not in enabled)

    def _listening(self) -> set[int]:
        """Return the TCP ports at which anybody listens (proc(5): local address, then state)."""
        rows = [
            line.split() for name in ("tcp", "tcp6") for line in _text(self.root / "proc/net" / name).splitlines()[1:]
        ]
        return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING}

    def _tpm(self, tcti: str) -> TpmView:
        """Read the TPM without a session or a key, under a lock file that is gone afterwards."""
        ours = self.root / "run/attested"
        try:
            with contextlib.ExitStack() as stack:
                # where our programs may use it, their lock; else one of our own, in memory
                lock = ours if ours.is_dir() else stack.enter_context(tempfile.TemporaryDirectory(dir=_memory_place()))
                tpm = stack.enter_context(open_tpm(tcti, lock_directory=lock))
                properties = tpm.properties()
                has_bank = ALG_SHA256 in properties.banks
                registers = tpm.pcr_read(range(PCR_COUNT)) if has_bank else {}
                return _view_of(properties, tpm.nv_indices(), registers)
        except AttestedError as error:
            return TpmView(problem=error.message)

    def _boot(self, expected: Expected, tpm: TpmView) -> BootView:
        return read_boot_view(
            tpm.registers,
            firmware=Path(expected.firmware_log),
            userspace=Path(expected.userspace_log),
            nodelock=self.root / "run/attested/nodelock.log",
        )


def _view_of(properties: TpmProperties, indices: Sequence[int], registers: dict[int, bytes]) -> TpmView:
    passwords = {"owner": properties.owner_auth_set, "endorsement": properties.endorsement_auth_set}
    return TpmView(
        maker=f"{properties.manufacturer} {properties.vendor}".strip(),
        sha256_bank=ALG_SHA256 in properties.banks,
        certificates=tuple(name for index, name in NV_EK_CERTIFICATES.items() if index in indices),
        other_certificates=tuple(name for index, name in NV_EK_OTHER.items() if index in indices),
        passwords=tuple(name for name, is_set in passwords.items() if is_set),
        disabled=properties.disabled,
        in_lockout=properties.in_lockout,
        registers=registers,
    )


def _memory_place() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  # a directory of our own is made in it


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _is_own(address: str) -> bool:
    """Say whether a socket can be bound to the address, which only one of the machine's own can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        try:
            link.bind((address, 0))
        except OSError:
            return False
    return True


def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def _silent(peers: Sequence[str]) -> tuple[str, ...]:
    """Return the peers (host:port) of whom nothing came; a refusal is an answer."""
    if not peers:
        return ()
    with ThreadPoolExecutor(min(len(peers), _AT_ONCE)) as pool:
        answers = list(pool.map(_answers, peers))
    return tuple(peer for peer, answered in zip(peers, answers, strict=True) if not answered)


def _answers(peer: str) -> bool:
    host, _colon, port = peer.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
