# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The implementation of the modules `etcd_member` and `etcd_member_info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.host import SystemClock
from ..result import Diff, Result
from .etcd_client import EtcdCredentials, EtcdGateway
from .etcd_members import majority, remove_member, voters_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .etcd_members import Member


def run_member(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Remove a member from etcd; raises `EtcdError`, also in check mode if the removal would be refused."""
    plan = remove_member(
        _gateway(params), name=params["name"], address=params["address"], check_mode=check_mode, clock=SystemClock()
    )
    return Result(
        changed=bool(plan),
        values={"removed": plan.member.as_result() if plan.member else {}, **_values(plan.left)},
        diff=Diff(before=_lines(plan.members), after=_lines(plan.left)),
    )


def run_member_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Return the members; raises ETCD_UNREACHABLE, ETCD_REFUSED."""
    return Result(values=_values(_gateway(params).members()))


def _gateway(params: Mapping[str, Any]) -> EtcdGateway:
    return EtcdGateway(params["endpoint"], EtcdCredentials.below(Path(params["certificates"])))


def _values(members: Sequence[Member]) -> dict[str, Any]:
    voters = voters_of(members)
    return {
        "members": [one.as_result() for one in members],
        "healthy": sum(one.healthy for one in voters),
        "majority": majority(len(voters)),
    }


def _lines(members: Sequence[Member]) -> str:
    return "".join(f"{line}\n" for line in sorted(one.shown for one in members))
