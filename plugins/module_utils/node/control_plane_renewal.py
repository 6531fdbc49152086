# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The renewal of a control plane's own certificates, used by the program, its timer and the module."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.host import SystemClock
from ..errors import AttestedError
from ..kubeadm.certificate_renewal import ControlPlaneRenewal, first_to_end, read_leaves, renews
from ..kubeadm.etcd_client import EtcdGateway
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..kubeadm.static_pods import StaticPods
from ..reasons import Reason
from ..result import Diff, Result
from .config import DEFAULT_PATH, load_node_config
from .control_plane_turns import AdminCredential, ControlPlaneTurns, local_api
from .renewal_record import CONTROL_PLANE_DIRECTORY, RenewalRecord, alone
from .run_record import RENEW_CONTROL_PLANE, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ..kubeadm.certificate_renewal import RenewalPlan
    from ..kubeadm.leaf_certificate import Leaf
    from ..result import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedControlPlane:
    """The plan, the executed steps (none in check mode), and the present certificates."""

    plan: RenewalPlan
    steps: tuple[Step, ...]
    leaves: tuple[Leaf, ...]


def renew_control_plane(
    config: str | Path, *, at_once: bool, check: bool, log: Callable[[str], None] | None = None
) -> RenewedControlPlane:
    """Renew the due certificates of this control plane, or all ``at_once``.

    In ``check`` mode only plan it. Raises as `ControlPlaneRenewal`. The plan names each CA that ends soon.
    """
    node = load_node_config(config).name
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    with alone(CONTROL_PLANE_DIRECTORY):
        credential = AdminCredential(machine.paths, CONTROL_PLANE_DIRECTORY)
        try:
            return renew_on(machine, node=node, credential=credential, at_once=at_once, check=check, log=log)
        finally:
            credential.remove()


def renew_on(
    machine: Machine,
    *,
    node: str,
    credential: AdminCredential,
    at_once: bool,
    check: bool,
    log: Callable[[str], None] | None = None,
) -> RenewedControlPlane:
    """Renew the certificates of ``machine``, whose Node is ``node``."""
    read_leaves(machine.paths)  # raises on a worker, which has no manifest that names the API server
    api = local_api(machine, credential)
    renewal = ControlPlaneRenewal(
        machine,
        pods=StaticPods(machine, node=node, reader=api),
        members=EtcdGateway.local(machine.paths),
        turns=ControlPlaneTurns(api, node=node, clock=machine.clock),
        say=log,
    )
    todo = renewal.plan(at_once=at_once)
    steps = () if check else renewal.apply(todo)
    return RenewedControlPlane(plan=todo, steps=steps, leaves=read_leaves(machine.paths))


def run_control_plane(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Execute the module `control_plane_certificates`."""
    done = renew_control_plane(params["node_config"], at_once=params["at_once"], check=check_mode)
    return result_of(done, check_mode=check_mode)


def result_of(done: RenewedControlPlane, *, check_mode: bool) -> Result:
    """Return the module's result.

    If a CA ends soon, raises CONTROL_PLANE_CA_ENDS, or only warns in check mode.
    """
    if not check_mode:
        done.plan.require_lasting()
    names = [leaf.certificate.name for leaf in done.plan.due]
    return Result(
        changed=bool(names),
        values={
            "renewed": names,
            "certificates": [_shown(leaf) for leaf in done.leaves],
            "expires": first_to_end(done.leaves).until.isoformat(timespec="seconds"),
            "steps": [{**step.as_result(), "changed": True} for step in done.steps],
        },
        diff=Diff(before="", after="".join(f"renew {name}\n" for name in names)),
        warnings=tuple(f"CA {name} ends at {ends:%Y-%m-%dT%H:%M:%SZ}" for name, ends in done.plan.ending),
    )


def _shown(leaf: Leaf) -> dict[str, str]:
    return {
        "name": leaf.certificate.name,
        "serial": leaf.serial,
        "expires": leaf.until.isoformat(timespec="seconds"),
        "renews": renews(leaf).isoformat(timespec="seconds"),
    }


# `attested-agent renew-control-plane`: renews the certificates of a control plane itself; a timer may run it.

_INTERVAL_SECONDS = 86400
_PASSES = frozenset(
    {Reason.API_CONFLICT, Reason.API_UNAVAILABLE, Reason.CONTROL_PLANE_JOIN_BUSY, Reason.ETCD_MEMBER_UNHEALTHY}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    options = _parser().parse_args(argv)
    record = RenewalRecord(CONTROL_PLANE_DIRECTORY, clock=SystemClock())
    runs = RunRecord(RENEW_CONTROL_PLANE, clock=SystemClock())
    try:
        with nullcontext() if options.check else runs.kept():
            values = renew_and_record(
                lambda: renew_control_plane(options.config, at_once=options.now, check=options.check, log=_log),
                None if options.check else record,
                interval_seconds=options.interval,
            )
    except AttestedError as error:
        sys.stderr.write(f"attested-agent renew-control-plane: {error.code}: {error}\n{error.hint}\n")
        return 1
    if options.json:
        sys.stdout.write(json.dumps(values, indent=2) + "\n")
    else:
        sys.stdout.write(_table(values, check=options.check))
    return 0


def renew_and_record(
    renew: Callable[[], RenewedControlPlane], record: RenewalRecord | None, *, interval_seconds: int
) -> Mapping[str, Any]:
    """Renew and return plain values; a failure is written to ``record`` (None in check mode)."""
    try:
        values = result_of(renew(), check_mode=record is None).values
    except AttestedError as error:
        if record is not None:
            record.failed(error, next_seconds=interval_seconds, passes=error.reason in _PASSES)
        raise
    if record is not None:
        record.clear()
    return values


def _log(title: str) -> None:
    sys.stderr.write(f"attested-agent renew-control-plane: {title}\n")


def _table(values: Mapping[str, Any], *, check: bool) -> str:
    renewed = values["renewed"]
    certificates = values["certificates"]
    word = "would be renewed" if check else "renewed"
    rows = [
        f"{one['name']:<26} until {one['expires']}  {word if one['name'] in renewed else 'due from ' + one['renews']}"
        for one in certificates
    ]
    return "\n".join(rows) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent renew-control-plane",
        description="Renew the certificates of this control plane that are due, one component after the other, "
        "and restart each component; one control plane of the cluster at a time.",
    )
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    parser.add_argument("--now", action="store_true", help="renew all of them, even if they are not due")
    parser.add_argument("--check", action="store_true", help="only list what would be renewed")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--interval",
        type=int,
        default=_INTERVAL_SECONDS,
        metavar="SECONDS",
        help="how often the timer runs this, for attested status (default: %(default)s)",
    )
    return parser
