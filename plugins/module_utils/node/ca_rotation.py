# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of the cluster's CAs on one node: read the node's state, and execute one phase on a control plane.

A kubelet needs a ticket for its part, so the work of the module `kubelet_authorities` is in `renew.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..core.host import SystemClock
from ..kubeadm.admin import groups_of, issue_admin_certificate
from ..kubeadm.ca_files import (
    AuthorityFiles,
    PlaneRotation,
    observe_kubelet,
    parse_successors,
    remove_serving_certificate,
    trust_as_kubelet,
)
from ..kubeadm.certificate_renewal import ControlPlaneRenewal
from ..kubeadm.etcd_client import EtcdGateway
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..kubeadm.static_pods import StaticPods
from ..result import Result
from ..rotation.authorities import CLUSTER, AuthorityPhase, PlaneAuthorities
from ..rotation.values import bundles_of, show_kubelet, show_plane
from .answers import open_box
from .config import load_node_config
from .control_plane_turns import AdminCredential, ControlPlaneTurns, local_api
from .renewal_record import CONTROL_PLANE_DIRECTORY, alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.command import Runner
    from ..rotation.values import Step

_HOLDER = "rotate-authorities"
"""The holder of the join Lease during the rotation, which the role `rotation` takes and frees."""
_KEY_SERVICE = "attested-key-service.service"
_SECONDS = 120.0
_LIMIT = 1 << 20


class OwnServices:
    """The kubelet and the key service of a control plane."""

    def __init__(self, machine: Machine) -> None:
        """Store the machine."""
        self._machine = machine

    def restart(self) -> None:
        """Restart both; raises KUBELET_NOT_RUNNING, COMMAND_FAILED."""
        self._machine.kubelet.restart()
        _restart_key_service(self._machine.runner)


def inspect_authorities(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CAs that this node trusts and, on a control plane, holds.

    Raises as `AuthorityFiles.observe`.
    """
    name = load_node_config(params["node_config"]).name
    paths = KubernetesPaths()
    values = {"node": name, "kubelet": show_kubelet(observe_kubelet(paths, name=name)), "plane": {}, "known": {}}
    if _is_plane(paths):
        files = AuthorityFiles(paths, clock=SystemClock())
        known = {key: pem.decode("ascii") for key, pem in files.known().items()}
        values |= {"plane": show_plane(files.observe(name=name)), "known": known}
    return {**values, "cluster_ca": read_bytes(paths.ca, limit=_LIMIT).decode("ascii")}


def change_authorities(step: Step, params: Mapping[str, Any], check_mode: bool) -> Result:
    """Execute one phase on this control plane; raises as `AuthorityFiles` and `PlaneRotation`."""
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    files = AuthorityFiles(machine.paths, clock=machine.clock)
    phase, bundles = AuthorityPhase(step.phase), bundles_of(step.change)
    if not has_effect(files.observe(name=step.node), phase, bundles):
        return Result()
    if check_mode:
        return Result(changed=True)
    if phase is AuthorityPhase.MAKE:
        files.make()
    elif phase is AuthorityPhase.SHARE:
        files.stage(parse_successors(open_box(params)))
    elif phase is AuthorityPhase.FORGET:
        files.remove_staged()
    else:
        known = {name: pem.encode("ascii") for name, pem in step.known.items()}
        _go_through(machine, files, phase, node=step.node, bundles=bundles, known=known)
    return Result(changed=True)


def run_admin_certificate(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # changes nothing
    """Sign an admin's request with the CA that signs on this node.

    Raises ADMIN_REQUEST_INVALID, OPTION_INVALID.
    """
    paths = KubernetesPaths()
    values = {"cluster_ca": read_bytes(paths.ca, limit=_LIMIT).decode("ascii")}
    if params["request"]:
        certificate = issue_admin_certificate(
            params["request"].encode(),
            paths=paths,
            clock=SystemClock(),
            hours=params["hours"],
            name=params["name"],
            groups=groups_of(params["name"], params["groups"]),
        )
        values["certificate"] = certificate.decode("ascii")
    return Result(values=values)


def has_effect(plane: PlaneAuthorities, phase: AuthorityPhase, bundles: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a phase changes anything on a control plane in the state ``plane``."""
    if phase in (AuthorityPhase.MAKE, AuthorityPhase.SHARE):
        return not plane.staged
    if phase is AuthorityPhase.FORGET:
        return bool(plane.staged)
    settled = plane.taken and plane.trusted == bundles
    if phase is AuthorityPhase.ISSUE:
        first = {name: trusted[0] for name, trusted in bundles.items()}
        shown = {name: {first[name]} for name in plane.issued}
        return not (settled and plane.signers == first and plane.issued == shown)
    return not settled


def _go_through(
    machine: Machine,
    files: AuthorityFiles,
    phase: AuthorityPhase,
    *,
    node: str,
    bundles: Mapping[str, tuple[str, ...]],
    known: Mapping[str, bytes],
) -> None:
    with alone(CONTROL_PLANE_DIRECTORY):
        credential = AdminCredential(machine.paths, CONTROL_PLANE_DIRECTORY)
        try:
            rotation = _rotation(machine, files, node=node, credential=credential)
            (rotation.issue if phase is AuthorityPhase.ISSUE else rotation.trust)(bundles, known)
        finally:
            credential.remove()


def _rotation(machine: Machine, files: AuthorityFiles, *, node: str, credential: AdminCredential) -> PlaneRotation:
    api = local_api(machine, credential)
    pods, members = StaticPods(machine, node=node, reader=api), EtcdGateway.local(machine.paths)
    turns = ControlPlaneTurns(api, node=node, clock=machine.clock, holder=_HOLDER)
    return PlaneRotation(
        files,
        renewal=ControlPlaneRenewal(machine, pods=pods, members=members, turns=turns),
        pods=pods,
        members=members,
        turns=turns,
        services=OwnServices(machine),
    )


def trust_updater(machine: Machine) -> Callable[[bytes], None]:
    """Return a function that lets the kubelet trust the CAs of its ticket, and restarts the kubelet.

    It removes a serving certificate that another CA signed. A control plane already trusts the CAs from an earlier
    phase.
    """

    def trust(authorities: bytes) -> None:
        remove_serving_certificate(machine.paths, authorities)
        restart = machine.kubelet.restart
        if _is_plane(machine.paths) or not trust_as_kubelet(machine.paths, authorities, restart=restart):
            restart()

    return trust


def _restart_key_service(runner: Runner) -> None:
    runner.run(["systemctl", "restart", _KEY_SERVICE], timeout_seconds=_SECONDS)


def _is_plane(paths: KubernetesPaths) -> bool:
    return (paths.root / CLUSTER.private).exists()
