# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_prerequisites_info`: list all missing prerequisites of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..errors import SystemFault
from ..reasons import Reason
from ..result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.command import Runner

_KERNEL_MODULES = ("br_netfilter", "overlay")
APT = "apt-get"
DNF = "dnf"
# Packages that RHEL and Fedora name otherwise than Debian.
_RPM_NAMES = {
    "conntrack": "conntrack-tools",
    "cryptsetup-bin": "cryptsetup",
    "iproute2": "iproute",
    "iptables": "iptables-nft",
    "mount": "util-linux",
    "procps": "procps-ng",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The state: missing packages, active swap, cgroup version, missing kernel modules, systemd as PID 1.

    ``missing_packages`` have the names of the machine's distribution, and ``package_manager`` installs them: ``APT``,
    ``DNF``, or "" if the machine has neither dpkg nor rpm. Then packages are not looked at.
    """

    missing_packages: tuple[str, ...]
    swaps: tuple[str, ...]
    cgroup_version: int
    missing_kernel_parts: tuple[str, ...]
    systemd: bool
    package_manager: str = APT


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReader:
    """Observe a machine; ``root`` replaces ``/`` in tests."""

    runner: Runner
    root: Path = Path("/")

    def observe(self, packages: Sequence[str], *, kernel_parts: Sequence[str] = ()) -> Machine:
        """Return the state; changes nothing. ``kernel_parts``: kernel modules besides those of every node."""
        package_manager, missing_packages = self._missing_packages(packages)
        return Machine(
            package_manager=package_manager,
            missing_packages=missing_packages,
            swaps=self._swaps(),
            cgroup_version=2 if (self.root / "sys/fs/cgroup/cgroup.controllers").exists() else 1,
            missing_kernel_parts=tuple(
                name for name in (*_KERNEL_MODULES, *kernel_parts) if not self._has_kernel_part(name)
            ),
            systemd=(self.root / "run/systemd/system").is_dir(),
        )

    def _missing_packages(self, packages: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return the package manager, and the packages that are not installed by its names for them."""
        for manager, missing in ((APT, self._unknown_to_dpkg), (DNF, self._unknown_to_rpm)):
            try:
                return manager, missing(packages)
            except SystemFault as error:
                if error.reason is not Reason.COMMAND_MISSING:
                    raise
        return "", ()

    def _unknown_to_dpkg(self, packages: Sequence[str]) -> tuple[str, ...]:
        # the exit code is 1 if a package is unknown; all others are listed
        asked = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *packages]
        listed = self.runner.run(asked, check=False).stdout.decode("utf-8", "replace")
        there = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
        return tuple(name for name in packages if name not in there)

    def _unknown_to_rpm(self, packages: Sequence[str]) -> tuple[str, ...]:
        # a package is also there if another one provides its name
        names = dict.fromkeys(_RPM_NAMES.get(name, name) for name in packages)
        asked = ["rpm", "--query", "--whatprovides"]
        return tuple(name for name in names if self.runner.run([*asked, name], check=False).returncode)

    def _swaps(self) -> tuple[str, ...]:
        table = self.root / "proc/swaps"
        lines = table.read_text(encoding="utf-8").splitlines()[1:] if table.exists() else []
        return tuple(line.split()[0] for line in lines if line.strip())

    def _has_kernel_part(self, name: str) -> bool:
        if (self.root / "sys/module" / name).is_dir():  # already loaded, for example by an initrd
            return True
        try:
            return self.runner.run(["modprobe", "--dry-run", "--quiet", name], check=False).returncode == 0
        except SystemFault:  # without kmod no module can be loaded; its missing package is another finding
            return False


def findings_of(machine: Machine, *, allow_cgroup_v1: bool) -> list[str]:
    """Return one sentence for each problem, in the order in which to repair them. Pure."""
    found = []
    if not machine.systemd:
        found.append("expected systemd as the first process, found another")
    if machine.missing_packages:
        found.append(f"expected the packages {' '.join(machine.missing_packages)}, they are not installed")
    if machine.swaps:
        found.append(f"expected no swap, found {' '.join(machine.swaps)}: a secret in memory could reach a disk")
    if machine.cgroup_version == 1 and not allow_cgroup_v1:
        found.append("expected cgroup v2, found v1 (on test machines, attested_allow_cgroup_v1 allows it)")
    if machine.missing_kernel_parts:
        found.append(
            f"expected a kernel with {' '.join(machine.missing_kernel_parts)}, it has neither module nor built-in"
        )
    return found


def inspect_prerequisites(
    params: Mapping[str, Any], _check_mode: bool, *, reader: MachineReader | None = None
) -> Result:
    """Return the findings for this machine; a finding is not an error."""
    machine = (reader or MachineReader(runner=SystemRunner())).observe(
        params["packages"], kernel_parts=params["kernel_modules"]
    )
    findings = findings_of(machine, allow_cgroup_v1=params["allow_cgroup_v1"])
    return Result(
        values={
            "findings": findings,
            "missing_packages": list(machine.missing_packages),
            "package_manager": machine.package_manager,
            "cgroup_version": machine.cgroup_version,
            "ready": not findings,
        }
    )
