# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of the encryption key for Secrets on one control plane: read keys, execute a phase, rewrite Secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.host import SystemClock, SystemRandom
from ..kubeadm.api_server import ApiServer
from ..kubeadm.encryption import PlaneEncryption, parse_keys, rewrite, survey
from ..kubeadm.etcd_client import EtcdGateway
from ..kubeadm.kubectl import Kubectl
from ..kubeadm.spec import KubernetesPaths
from ..result import Diff, Result
from ..rotation.encryption_key import RotationPhase
from ..rotation.values import show_keys
from .answers import open_box
from .config import load_node_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rotation.values import Step

_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


def inspect_keys(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of this control plane; raises as `PlaneEncryption.observe`."""
    return show_keys(plane_encryption(params).observe(name=load_node_config(params["node_config"]).name))


def inspect_cluster(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nodes of the cluster and the time.

    A rotation of the encryption key also gets the number of Secrets per key.
    """
    nodes = Kubectl.of_a_module(params["kubeconfig"]).read(("nodes",))
    stored = survey(EtcdGateway.local(KubernetesPaths())).counts if params["kind"] == "encryption_key" else {}
    planes = [one for one in nodes if _PLANE_LABEL in one["metadata"].get("labels", {})]
    return {
        "nodes": sorted(one["metadata"]["name"] for one in nodes),
        "control_planes": sorted(one["metadata"]["name"] for one in planes),
        "now": SystemClock().now().isoformat(),
        "stored": stored,
    }


def change_keys(step: Step, params: Mapping[str, Any], check_mode: bool) -> Result:
    """Make a key, or set the order of this control plane's keys; raises as `PlaneEncryption`."""
    plane = plane_encryption(params)
    if RotationPhase(step.phase) is RotationPhase.MAKE:
        return Result(changed=True, values={} if check_mode else {"made": plane.make(random=SystemRandom())})
    given = parse_keys(open_box(params)) if params["sealed"] else {}
    wanted = plane.arrange(step.change["keys"], given=given)
    before = plane.observe(name="").order
    changed = plane.differs(wanted) if check_mode else plane.place(wanted, Kubectl.of_a_module(params["kubeconfig"]))
    return Result(changed=changed, diff=Diff(before=_lines(before), after=_lines(wanted.order)))


def run_stored_secrets(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Rewrite up to ``most`` Secrets that are encrypted with another key; raises as `rewrite`."""
    etcd = EtcdGateway.local(KubernetesPaths())
    if check_mode:
        found = survey(etcd)
        left = len(found.except_key(params["in_force"]))
        return Result(changed=bool(left), values={"done": 0, "left": left, "total": sum(found.counts.values())})
    done = rewrite(etcd, Kubectl.of_a_module(params["kubeconfig"]), key=params["in_force"], most=params["most"])
    return Result(changed=bool(done.done), values={"done": done.done, "left": done.left, "total": done.total})


def plane_encryption(params: Mapping[str, Any]) -> PlaneEncryption:
    """Return the encryption configuration of this control plane, with the API server that uses it."""
    paths, kubectl = KubernetesPaths(), Kubectl.of_a_module(params["kubeconfig"])
    return PlaneEncryption(paths, ApiServer(paths, kubectl, clock=SystemClock()))


def _lines(names: tuple[str, ...]) -> str:
    return "".join(f"{name}\n" for name in names)
