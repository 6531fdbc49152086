# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_kubernetes`: plan the upgrade of this member and carry it out, one control plane at a time.

The next run repeats an interrupted one: each command may run twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bundle.releases import Releases, left_out
from ..core.command import SystemRunner
from ..core.host import SystemClock
from ..errors import ComponentError, KubeadmError
from ..kubeadm.etcd_client import EtcdGateway
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths, NodeSpec
from ..kubeadm.static_pods import StaticPods
from ..reasons import Reason
from ..result import Diff, Result, Step
from .config import load_node_config
from .control_plane_turns import AdminCredential, ControlPlaneTurns, local_api
from .kubernetes import KubernetesGateway
from .renewal_record import CONTROL_PLANE_DIRECTORY, alone
from .upgrade_plan import plan_step, plan_upgrade

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.host import Clock
    from ..kubeadm.certificate_renewal import Members
    from .upgrade_plan import UpgradePlan

_MEMBERS_SECONDS = 60.0
_POLL_SECONDS = 1.0


def run_kubernetes(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Upgrade this member to ``params['release']``; raises RELEASE_* and the errors of `KubernetesGateway`."""
    name = load_node_config(params["node_config"]).name
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    if params["role"] == "worker":
        return upgrade(_gateway(params, machine, name, pods=None), params, check_mode=check_mode)
    with alone(CONTROL_PLANE_DIRECTORY):
        credential = AdminCredential(machine.paths, CONTROL_PLANE_DIRECTORY)
        try:
            api = local_api(machine, credential)
            gateway = _gateway(params, machine, name, pods=StaticPods(machine, node=name, reader=api))
            turns = ControlPlaneTurns(api, node=name, clock=machine.clock)
            members = EtcdGateway.local(machine.paths)
            return upgrade(gateway, params, check_mode=check_mode, turns=turns, members=members)
        finally:
            credential.remove()


def upgrade(
    gateway: KubernetesGateway,
    params: Mapping[str, Any],
    *,
    check_mode: bool,
    turns: ControlPlaneTurns | None = None,
    members: Members | None = None,
) -> Result:
    """Plan and apply the upgrade; ``turns``: Lease that lets one control plane at a time join or restart.

    ``members``: those of etcd. Each must be healthy before one of them is stopped.
    """
    release, images, seconds = str(params["release"]), params["images"], float(params["wait_seconds"])
    found = gateway.observe(release, images)
    if check_mode and params["after"] and found.apis:
        found = found.after(params["after"])
    if step := params["step"]:
        plan = plan_step(found, step)
        version = step if plan.is_empty else _require_version(gateway, release, step)
    else:
        version = gateway.version_of(release)
        plan = plan_upgrade(found, version, control_plane=params["role"] != "worker")
    whole = params["until"] == "kubelet" and not step
    begins = bool(plan.command) and not found.begun
    if check_mode and begins:
        _require_etcd(members, gateway.machine.clock, seconds=0)
    steps: list[Step] = []
    if not check_mode and not plan.is_empty:
        if turns:
            turns.take()
        try:
            if begins:
                _require_etcd(members, gateway.machine.clock, seconds=_MEMBERS_SECONDS)
            steps = _carry_out(gateway, plan, release, images, seconds=seconds, whole=whole)
        finally:
            if turns:
                turns.free()
    return Result(
        changed=bool(plan.command) or (whole and not plan.is_empty),
        values={
            "release": release,
            "version": version,
            "before": plan.before,
            "drain": plan.drains,
            "steps": [{**step.as_result(), "changed": True} for step in steps],
        },
        diff=Diff(before=f"Kubernetes {plan.before}\n", after="".join(f"{line}\n" for line in plan.lines())),
    )


def _require_etcd(members: Members | None, clock: Clock, *, seconds: float) -> None:
    deadline = clock.monotonic() + seconds
    while members:
        try:
            members.require_healthy()
            break
        except KubeadmError:
            if clock.monotonic() >= deadline:
                raise
        clock.sleep(_POLL_SECONDS)


def _require_version(gateway: KubernetesGateway, release: str, step: str) -> str:
    if (found := gateway.version_of(release, step)) != step:
        raise ComponentError(
            f"expected kubeadm {step} in the steps of release {release}, got {found}",
            reason=Reason.RELEASE_NOT_PREPARED,
        )
    return step


def _carry_out(
    gateway: KubernetesGateway,
    plan: UpgradePlan,
    release: str,
    images: Sequence[Mapping[str, Any]],
    *,
    seconds: float,
    whole: bool,
) -> list[Step]:
    clock = gateway.machine.clock
    steps = []
    begun = clock.monotonic()
    if plan.command or whole:
        gateway.keep(plan, release)
    if plan.command:
        gateway.configure(plan, release, images, seconds=seconds)
        title = f"Upgrade by kubeadm upgrade {plan.command}"
        steps.append(Step(name=plan.command, title=title, seconds=clock.monotonic() - begun))
    if whole:
        begun = clock.monotonic()
        gateway.replace_kubelet(plan, release, seconds=seconds)
        steps.append(Step(name="kubelet", title="Replace the kubelet", seconds=clock.monotonic() - begun))
    return steps


def _gateway(params: Mapping[str, Any], machine: Machine, name: str, *, pods: StaticPods | None) -> KubernetesGateway:
    node = NodeSpec(
        name=name,
        node_ip="",
        ignore_preflight_errors=tuple(params["ignore_preflight_errors"]),
        allow_cgroup_v1=params["allow_cgroup_v1"],
    )
    without = left_out(params["containerd"])
    return KubernetesGateway(machine, Releases(params["path"]), node=node, pods=pods, without=without)
