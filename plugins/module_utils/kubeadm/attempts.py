# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who was refused, as the cluster's `JoinAttempt` objects say it, and what the module `join_attempt_info` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..result import Result
from .kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ATTEMPTS = "joinattempts.attested-kubernetes.dev"
_FIELDS = {
    "machine": "machine",
    "node": "nodeName",
    "ek_sha256": "ekSha256",
    "reason": "reason",
    "message": "message",
    "command": "next",
    "correlation_id": "correlationId",
    "first_seen": "firstSeen",
    "last_seen": "lastSeen",
}


def list_attempts(objects: Iterable[Mapping[str, Any]], *, node: str = "", reason: str = "") -> list[dict[str, Any]]:
    """Return attempts as plain values, the latest first; ``node`` and ``reason`` choose, empty takes all."""
    rows = [_row(one["metadata"]["name"], one.get("status", {})) for one in objects]
    chosen = [row for row in rows if node in {"", row["node"], row["machine"]} and reason in {"", row["reason"]}]
    return sorted(chosen, key=lambda row: str(row["last_seen"]), reverse=True)


def run_attempts(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Read the attempts of the cluster; raises KUBECTL_FAILED."""
    kubectl = Kubectl.of_a_module(params["kubeconfig"])
    found = list_attempts(kubectl.read((ATTEMPTS,)), node=params["node"], reason=params["reason"])
    return Result(values={"attempts": found})


def _row(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {ours: status.get(theirs, "") for ours, theirs in _FIELDS.items()}
    return {"name": name, "count": status.get("count", 0), **row}
