# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module `preflight_info` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..result import Result
from ..statedisk import LEAST_BYTES
from ..system import SystemClock, SystemRunner
from .facts import Expected, StateDisk
from .gateway import PreflightReader
from .judge import Level, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .facts import MachineView


def run_preflight(params: Mapping[str, Any], _check_mode: bool, *, reader: PreflightReader | None = None) -> Result:
    """Look at this machine and say what it lacks; changes nothing and never fails because of what it finds."""
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
        pod_security=params["pod_security"],
        kubelets_checked=params["kubelet_serving_certificates"],
        tcti=params["tcti"],
        firmware_log=params["firmware_log"],
        userspace_log=params["userspace_log"],
        node_ip=params["node_ip"],
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
