# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of the cluster's authorities, module by module: options in, one call of the domain, result out.

`authority_info`, `authority_rotation_info`, `authority_rotation`, `authority_share`, `admin_certificate`. The module
`kubelet_authorities` takes a ticket, so it is in `renew.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..core.host import SystemClock
from ..errors import SystemFault
from ..kubeadm.admin import issue_admin_certificate
from ..kubeadm.ca_files import AuthorityFiles, PlaneRotation, believe_as_kubelet, forget_serving, observe_kubelet
from ..kubeadm.ca_keypairs import parse_successors, render_successors
from ..kubeadm.certificate_renewal import ControlPlaneRenewal
from ..kubeadm.etcd_health import EtcdMembers
from ..kubeadm.kubectl import Kubectl
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..kubeadm.static_pods import StaticPods
from ..reasons import Reason
from ..result import Result
from ..rotation.authorities import (
    AUTHORITIES,
    CLUSTER,
    AuthorityPhase,
    FoundAuthorities,
    KubeletAuthorities,
    PlaneAuthorities,
    plan_authorities,
)
from ..transport.sealed_box import OneTimeKey
from .answers import AnswerStore, decode
from .authorization import OfferStore
from .config import load_node_config
from .control_plane_turns import AdminCredential, ControlPlaneTurns, local_api
from .key_share import OFFERS, encode, open_orders
from .renewal_record import CONTROL_PLANE_DIRECTORY, alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.command import Runner
    from ..rotation.authorities import AuthorityPlan
    from .key_share import ShareOrder

_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
_KEY_SERVICE = "attested-key-service.service"
_SECONDS = 120.0
_LIMIT = 1 << 20


class OwnServices:
    """The kubelet and the key service of a control plane."""

    def __init__(self, machine: Machine) -> None:
        """Keep the machine."""
        self._machine = machine

    def restart(self) -> None:
        """Start both anew; raises KUBELET_NOT_RUNNING, COMMAND_FAILED."""
        self._machine.kubelet.restart()
        _restart_key_service(self._machine.runner)


def run_authority_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Say whom this node believes, and of a control plane what it holds; raises as `AuthorityFiles.observe`."""
    name = load_node_config(params["node_config"]).name
    paths = KubernetesPaths()
    values = {"node": name, "kubelet": show_kubelet(observe_kubelet(paths, name=name)), "plane": {}, "known": {}}
    if _is_plane(paths):
        files = AuthorityFiles(paths, clock=SystemClock())
        known = {key: pem.decode("ascii") for key, pem in files.known().items()}
        values |= {"plane": show_plane(files.observe(name=name)), "known": known}
    return Result(values={**values, "cluster_ca": read_bytes(paths.ca, limit=_LIMIT).decode("ascii")})


def run_rotation_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Say what is left of a rotation; raises what `plan_authorities` raises, and KUBECTL_FAILED."""
    nodes = Kubectl.of_a_module(params["kubeconfig"]).read(("nodes",))
    return Result(values=plan_of(params["found"], nodes, old=params["old"], now=SystemClock().now()))


def run_rotation(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Do one phase on this control plane; raises what `AuthorityFiles` and `PlaneRotation` raise."""
    node = load_node_config(params["node_config"]).name
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    files = AuthorityFiles(machine.paths, clock=machine.clock)
    phase, bundles = AuthorityPhase(params["phase"]), _bundles(params["bundles"])
    if not is_left(files.observe(name=node), phase, bundles):
        return Result()
    if check_mode:
        return Result(changed=True)
    if phase is AuthorityPhase.MAKE:
        files.make()
    elif phase is AuthorityPhase.SHARE:
        box = decode(params["sealed"] or "", "sealed")
        files.stage(parse_successors(AnswerStore().take(params["handle"] or "").open(box)))
    elif phase is AuthorityPhase.FORGET:
        files.forget()
    else:
        _go_through(machine, files, phase, node=node, params=params)
    return Result(changed=True)


def run_share(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # writes tmpfs only
    """Offer a one-time key, or seal the successors to the machines that the orders name."""
    offers = OfferStore(OFFERS)
    if params["orders"] is None:
        key = OneTimeKey.generate()
        return Result(values={"handle": offers.put(key), "offer": encode(key.public)})
    sealed = {str(node): decode(str(text), "orders") for node, text in params["orders"].items()}
    orders = open_orders(sealed, handle=params["handle"] or "", offers=offers)
    for order in orders.values():
        require_authorities(order)
    parcel = render_successors(AuthorityFiles(KubernetesPaths(), clock=SystemClock()).staged())
    return Result(values={"boxes": {node: encode(order.box(parcel)) for node, order in orders.items()}})


def run_admin_certificate(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # changes nothing
    """Sign an admin's request with the CA that signs here; raises ADMIN_REQUEST_INVALID."""
    paths = KubernetesPaths()
    certificate = issue_admin_certificate(
        params["request"].encode(), paths=paths, clock=SystemClock(), hours=params["hours"]
    )
    believed = read_bytes(paths.ca, limit=_LIMIT).decode("ascii")
    return Result(values={"certificate": certificate.decode("ascii"), "cluster_ca": believed})


def is_left(plane: PlaneAuthorities, phase: AuthorityPhase, bundles: Mapping[str, tuple[str, ...]]) -> bool:
    """Say whether a phase changes anything on a control plane that looks so."""
    if phase in (AuthorityPhase.MAKE, AuthorityPhase.SHARE):
        return not plane.staged
    if phase is AuthorityPhase.FORGET:
        return bool(plane.staged)
    settled = plane.taken and plane.trusted == bundles
    if phase is AuthorityPhase.ISSUE:
        first = {name: believed[0] for name, believed in bundles.items()}
        shown = {name: {first[name]} for name in plane.issued}
        return not (settled and plane.signers == first and plane.issued == shown)
    return not settled


def plan_of(
    found: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], *, old: str, now: datetime
) -> dict[str, Any]:
    """Return as plain values what is left, of what `authority_info` said on each node and the cluster's Nodes.

    Raises as `plan_authorities`, and OPTION_INVALID.
    """
    every = frozenset(one["metadata"]["name"] for one in nodes)
    members = frozenset(one["metadata"]["name"] for one in nodes if _PLANE_LABEL in one["metadata"].get("labels", {}))
    try:
        planes = [parse_plane(one["plane"]) for one in found if one["plane"]]
        kubelets = [parse_kubelet(one["kubelet"]) for one in found]
        known = {str(name): str(pem) for one in found for name, pem in one["known"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SystemFault(
            "expected results of the module authority_info in found, got something else", reason=Reason.OPTION_INVALID
        ) from error
    everything = FoundAuthorities(planes=planes, kubelets=kubelets, members=members, nodes=every)
    plan = plan_authorities(everything, old=old, now=now)
    in_force = sorted({one.signers[CLUSTER.name] for one in planes})
    return {**_shown(plan), "known": known, "in_force": in_force}


def show_plane(plane: PlaneAuthorities) -> dict[str, Any]:
    """Return one control plane as plain values."""
    return {
        "name": plane.name,
        "signers": dict(plane.signers),
        "trusted": {name: list(keys) for name, keys in plane.trusted.items()},
        "issued": {name: sorted(keys) for name, keys in plane.issued.items()},
        "staged": dict(plane.staged),
        "taken": plane.taken,
        "since": plane.since.isoformat(),
    }


def parse_plane(said: Mapping[str, Any]) -> PlaneAuthorities:
    """Return what `show_plane` showed; raises `KeyError`, `TypeError`, `ValueError`, `AttributeError`."""
    return PlaneAuthorities(
        name=str(said["name"]),
        signers=dict(said["signers"]),
        trusted=_bundles(said["trusted"]),
        issued={str(name): frozenset(keys) for name, keys in said["issued"].items()},
        staged=dict(said["staged"]),
        taken=said["taken"] is True,
        since=datetime.fromisoformat(said["since"]),
    )


def show_kubelet(kubelet: KubeletAuthorities) -> dict[str, Any]:
    """Return one kubelet as plain values."""
    return {
        "name": kubelet.name,
        "trusted": sorted(kubelet.trusted),
        "named": sorted(kubelet.named),
        "issued": kubelet.issued,
    }


def parse_kubelet(said: Mapping[str, Any]) -> KubeletAuthorities:
    """Return what `show_kubelet` showed; raises `KeyError`, `TypeError`."""
    trusted, named = frozenset(said["trusted"]), frozenset(said["named"])
    return KubeletAuthorities(name=str(said["name"]), trusted=trusted, named=named, issued=str(said["issued"]))


def require_authorities(order: ShareOrder) -> None:
    """Raise OPTION_INVALID unless the admin's machine ordered successors, all of them, and nothing else."""
    wanted = {one.name for one in AUTHORITIES}
    if set(order.names) != wanted:
        raise SystemFault(
            f"expected an order for {', '.join(sorted(wanted))}, got one for {', '.join(order.names)[:200]}",
            reason=Reason.OPTION_INVALID,
        )


def _go_through(
    machine: Machine, files: AuthorityFiles, phase: AuthorityPhase, *, node: str, params: Mapping[str, Any]
) -> None:
    bundles = _bundles(params["bundles"])
    known = {str(name): str(pem).encode("ascii") for name, pem in params["known"].items()}
    with alone(CONTROL_PLANE_DIRECTORY):
        credential = AdminCredential(machine.paths, CONTROL_PLANE_DIRECTORY)
        try:
            rotation = _rotation(machine, files, node=node, credential=credential, holder=params["holder"])
            (rotation.issue if phase is AuthorityPhase.ISSUE else rotation.believe)(bundles, known)
        finally:
            credential.forget()


def _rotation(
    machine: Machine, files: AuthorityFiles, *, node: str, credential: AdminCredential, holder: str
) -> PlaneRotation:
    api = local_api(machine, credential)
    pods, members = StaticPods(machine, node=node, reader=api), EtcdMembers(machine.paths)
    turns = ControlPlaneTurns(api, node=node, clock=machine.clock, holder=holder)
    return PlaneRotation(
        files,
        renewal=ControlPlaneRenewal(machine, pods=pods, members=members, turns=turns),
        pods=pods,
        members=members,
        turns=turns,
        services=OwnServices(machine),
    )


def believer(machine: Machine) -> Callable[[bytes], None]:
    """Return how a kubelet takes the CAs of its ticket: what a control plane believes it was told already."""

    def believe(authorities: bytes) -> None:
        forget_serving(machine.paths, authorities)
        restart = machine.kubelet.restart
        if _is_plane(machine.paths) or not believe_as_kubelet(machine.paths, authorities, restart=restart):
            restart()

    return believe


def _restart_key_service(runner: Runner) -> None:
    runner.run(["systemctl", "restart", _KEY_SERVICE], timeout_seconds=_SECONDS)


def _is_plane(paths: KubernetesPaths) -> bool:
    return (paths.root / CLUSTER.private).exists()


def _bundles(said: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {str(name): tuple(keys) for name, keys in said.items()}


def _shown(plan: AuthorityPlan) -> dict[str, Any]:
    return {
        "phases": [phase.value for phase in plan.phases],
        "successors": dict(plan.successors),
        "source": plan.source,
        "bundles": {node: _lists(bundles) for node, bundles in plan.bundles.items()},
        "kubelets": list(plan.kubelets),
        "waits_until": f"{plan.waits_until:%Y-%m-%dT%H:%M:%SZ}" if plan.waits_until else "",
    }


def _lists(bundles: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: list(keys) for name, keys in bundles.items()}
