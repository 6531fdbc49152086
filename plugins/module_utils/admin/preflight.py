# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module `preflight_info`."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundle.prerequisites import MachineReader
from ..core.command import SystemRunner
from ..core.files import mount_kind, read_bytes
from ..core.host import SystemClock
from ..disk.gateway import LinuxDevice
from ..disk.luks_check import STATE_DISK
from ..disk.paths import KERNEL_PARTS, LEAST_BYTES, NAME, StatePaths
from ..disk.plan import require_by_id
from ..errors import AttestedError, SystemFault
from ..evidence.eventlog.facts import boot_facts
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER, read_lock
from ..evidence.eventlog.replay import verify_replay
from ..evidence.eventlog.tcg import parse_firmware_log, parse_records
from ..reasons import Reason
from ..result import Result
from ..tpm.client import TpmProperties, open_tpm
from ..tpm.constants import ALG_SHA256, NV_EK_CERTIFICATES, NV_EK_OTHER, PCR_COUNT
from .preflight_checks import BootView, DiskView, Expected, Level, MachineView, Skew, StateDisk, TpmView, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.command import Follower, Runner
    from ..core.host import Clock
    from ..disk.plan import DiskFacts
    from ..evidence.eventlog.tcg import FirmwareLog, UserspaceRecord


# The logs of this boot, compared with the registers.

_LIMIT = 4 << 20
_UNREPLAYED = (DEFAULT_REGISTER, 10)  # the node lock's, which is read separately, and IMA's, which has another log


def read_boot_view(registers: Mapping[int, bytes], *, firmware: Path, userspace: Path, nodelock: Path) -> BootView:
    """Compare the logs with ``registers`` (SHA-256 bank, 32 bytes each); a bad log is a finding, not an error."""
    try:
        log = parse_firmware_log(read_bytes(firmware, limit=_LIMIT))
    except AttestedError as error:
        return BootView(firmware_problem=error.message)
    if not log.events:
        return BootView(firmware_problem=f"expected events in {firmware}, it is empty")
    try:
        records = _records(userspace)
        return _held(registers, log, records, _records(nodelock), has_userspace=userspace.exists())
    except AttestedError as error:
        if error.reason is Reason.DEPENDENCY_MISSING:
            return BootView(unseen=f"the logs were not compared with the registers: {error.message}")
        return BootView(replay_problem=error.message, userspace_log=userspace.exists())


def _held(
    registers: Mapping[int, bytes],
    log: FirmwareLog,
    records: tuple[UserspaceRecord, ...],
    nodelock: tuple[UserspaceRecord, ...],
    *,
    has_userspace: bool,
) -> BootView:
    verify_replay(registers, log, records, except_for=_UNREPLAYED)
    lock = DEFAULT_REGISTER
    value = registers.get(lock)
    reading = read_lock(value, register=lock, firmware=log, userspace=records, nodelock=nodelock) if value else None
    return BootView(
        userspace_log=has_userspace,
        secure_boot=boot_facts(log, quoted=registers).secure_boot,
        lock=reading.state.value if reading else "",
        lock_why=reading.why if reading else "",
    )


def _records(path: Path) -> tuple[UserspaceRecord, ...]:
    return parse_records(read_bytes(path), path.name) if path.exists() else ()


# The state disk that a site names, which is read and not changed.

_VERSION = re.compile(r"cryptsetup (\d+)\.(\d+)")
_OUR_MAPPING = (f"{NAME}_dif",)


def read_disk_view(device: str, *, runner: Runner, follower: Follower) -> DiskView:
    """Return the state of ``device`` (below /dev/disk/by-id); a bad disk is a finding, not an error."""
    version = _version(runner)
    try:
        # the machine's disk id is not known here, so no mapping is recognised as its disk's
        facts = LinuxDevice(require_by_id(device), paths=StatePaths(), runner=runner, follower=follower).facts("")
    except AttestedError as error:
        return DiskView(problem=f"{error.message} ({error.code})", cryptsetup=version)
    if facts is None:
        return DiskView(present=False, cryptsetup=version)
    is_open = facts.users == _OUR_MAPPING
    return DiskView(
        size_bytes=facts.size_bytes,
        users=() if is_open else facts.users,
        ours=is_open or _carries_our_label(facts),
        contents="" if facts.empty else facts.contents(),
        cryptsetup=version,
    )


def _carries_our_label(facts: DiskFacts) -> bool:
    try:
        header = facts.header()
    except AttestedError:
        return False
    return header is not None and header.label == STATE_DISK.label


def _version(runner: Runner) -> tuple[int, ...] | None:
    try:
        output = runner.run(["cryptsetup", "--version"], check=False).stdout.decode("utf-8", "replace")
    except AttestedError:
        return None
    found = _VERSION.match(output)
    return tuple(map(int, found.groups())) if found else None


# Reads the state of a machine, which `preflight_checks` judges, and changes nothing.

COMMANDS = ("conntrack", "ip", "iptables", "modprobe", "nft", "systemctl", "sysctl")
_RUNTIMES = ("containerd", "runc")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOOPBACK_PORTS = frozenset({9092, 10257, 10259})  # docs/ports.md: served on 127.0.0.1 only
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
_PLACES = ("/opt", "/var/lib")
_LISTENING = "0A"
_KUBERNETES = ("etc/kubernetes/kubelet.conf", "etc/kubernetes/admin.conf", "var/lib/etcd/member")
_ANSWER_SECONDS = 3.0
_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReader:
    """Observes a machine; ``root`` replaces ``/`` in tests, but not for the TPM and its logs."""

    runner: Runner
    clock: Clock
    root: Path = Path("/")

    def observe(self, expected: Expected) -> MachineView:
        """Read everything once; a part that cannot be read is a field of the view, not an error."""
        now = self.clock.now().timestamp()
        base = MachineReader(runner=self.runner, root=self.root).observe(
            expected.packages, kernel_parts=KERNEL_PARTS if expected.state_disk else ()
        )
        tpm = self._tpm(expected.tcti)
        return MachineView(
            base=base,
            root=os.geteuid() == 0,
            architecture=platform.machine(),
            python=sys.version_info[:2],
            processors=os.cpu_count() or 1,
            memory=self._memory(),
            free={place: shutil.disk_usage(_existing(self.root / place.lstrip("/"))).free for place in _PLACES},
            missing_controllers=self._missing_controllers(base.cgroup_version),
            missing_commands=_missing_commands(expected.packages),
            tpm=tpm,
            boot=BootView() if tpm.problem else self._boot(expected, tpm),
            # the admin's time was taken before the module was sent, and the duration of sending is not known
            skew=Skew(least=now - expected.admin_time - self._longest_way(), most=now - expected.admin_time),
            remote_tmp_kind=mount_kind(_existing(Path(expected.remote_tmp))),
            taken_ports=tuple(sorted(set(expected.ports) & self._listening())),
            foreign_addresses=tuple(
                one for one in (expected.node_ip, expected.second_node_ip) if one and not _is_own(one)
            ),
            endpoint_resolves=_resolves(expected.endpoint_host),
            silent_peers=_silent(expected.peers),
            prepared=(self.root / "etc/attested/node.yml").exists(),
            foreign_kubernetes=tuple(f"/{name}" for name in _KUBERNETES if (self.root / name).exists()),
            disk=self._disk(expected),
            closed_ports=self._closed_ports(expected.ports),
            selinux_enforces=_text(self.root / "sys/fs/selinux/enforce").strip() == "1",
        )

    @staticmethod
    def _longest_way() -> float:
        return 30.0  # a slow connection and an old machine; less than the smallest reported difference

    def _disk(self, expected: Expected) -> DiskView | None:
        if expected.state_disk is None:
            return None
        return read_disk_view(expected.state_disk.device, runner=self.runner, follower=SystemRunner())

    def _closed_ports(self, ports: Sequence[int]) -> tuple[int, ...]:
        """Return the TCP ports that firewalld's default zone does not open; none if firewalld does not run."""
        try:
            if self.runner.run(["firewall-cmd", "--state"], check=False).returncode:
                return ()
        except SystemFault:
            return ()
        asked = ("firewall-cmd", "--quiet")
        return tuple(
            port
            for port in sorted(set(ports) - _LOOPBACK_PORTS)
            if self.runner.run([*asked, f"--query-port={port}/tcp"], check=False).returncode
        )

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
        """Return the TCP ports with a listener (proc(5): local address, then state)."""
        rows = [
            line.split() for name in ("tcp", "tcp6") for line in _text(self.root / "proc/net" / name).splitlines()[1:]
        ]
        return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING}

    def _tpm(self, tcti: str) -> TpmView:
        """Read the TPM without a session or a key, under a lock file that is removed afterwards."""
        ours = self.root / "run/attested"
        try:
            with contextlib.ExitStack() as stack:
                # if programs of this collection may use the TPM, their lock; else a temporary one in memory
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
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  # a private directory is made in it


def _missing_commands(packages: Sequence[str]) -> tuple[str, ...]:
    """Return the missing commands: those of every node, and the container runtimes among ``packages``."""
    wanted = (*COMMANDS, *(name for name in _RUNTIMES if name in packages))
    return tuple(name for name in wanted if shutil.which(name, path=_PATH) is None)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _is_own(address: str) -> bool:
    """Return whether a socket can be bound to the address, which works only for the machine's own addresses."""
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
    """Return the peers (host:port) that did not answer; a refused connection is an answer."""
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


def run_preflight(params: Mapping[str, Any], _check_mode: bool, *, reader: PreflightReader | None = None) -> Result:
    """Return the findings about this machine; changes nothing, and findings are no failure."""
    expected = _expected(params)
    seen = (reader or PreflightReader(runner=SystemRunner(), clock=SystemClock())).observe(expected)
    findings = judge(seen, expected)
    return Result(
        values={
            "ready": all(finding.level is not Level.MISSING for finding in findings),
            "findings": [finding.as_row() for finding in findings],
            "machine": _facts(seen),
        }
    )


def _expected(params: Mapping[str, Any]) -> Expected:
    return Expected(
        node_name=params["node_name"],
        control_plane=params["role"] == "control_plane",
        packages=tuple(params["packages"]),
        install_packages=params["install_packages"],
        allow_cgroup_v1=params["allow_cgroup_v1"],
        ignored_errors=frozenset(params["ignore_preflight_errors"]),
        state_disk=_state_disk(params),
        python_version=params["python_version"],
        architecture=params["architecture"],
        pod_security=params["pod_security"],
        kubelets_checked=params["kubelet_serving_certificates"],
        tcti=params["tcti"],
        firmware_log=params["firmware_log"],
        userspace_log=params["userspace_log"],
        node_ip=params["node_ip"],
        second_node_ip=params["second_node_ip"],
        pod_subnet=params["pod_subnet"],
        service_subnet=params["service_subnet"],
        endpoint_host=params["api_endpoint"].rpartition(":")[0].strip("[]"),
        peers=tuple(params["peers"]),
        ports=tuple(params["ports"]),
        remote_tmp=params["remote_tmp"],
        admin_time=params["admin_time"],
    )


def _state_disk(params: Mapping[str, Any]) -> StateDisk | None:
    if not params["state_disk"]:
        return None
    return StateDisk(
        device=params["state_disk"],
        minimum_bytes=params["state_disk_minimum_bytes"] or LEAST_BYTES,
        erase=params["state_disk_erase"],
    )


def _facts(seen: MachineView) -> dict[str, Any]:
    return {
        "architecture": seen.architecture,
        "python": ".".join(map(str, seen.python)),
        "processors": seen.processors,
        "memory_bytes": seen.memory,
        "free_bytes": dict(seen.free),
        "cgroup_version": seen.base.cgroup_version,
        "tpm": seen.tpm.maker,
        "ek_certificates": list(seen.tpm.certificates),
        "secure_boot": seen.boot.secure_boot,
        "nodelock": seen.boot.lock,
        "prepared": seen.prepared,
    }
