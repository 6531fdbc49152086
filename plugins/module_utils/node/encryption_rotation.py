# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of the key for Secrets at rest, module by module: options in, one call of the domain, result out.

`encryption_info`, `encryption_rotation_info`, `encryption_keys`, `encryption_share`, `stored_secrets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.host import SystemClock, SystemRandom
from ..errors import SystemFault
from ..kubeadm.api_server import ApiServer
from ..kubeadm.kubectl import Kubectl
from ..kubeadm.plane_encryption import PlaneEncryption, parse_keys, render_keys
from ..kubeadm.spec import KubernetesPaths
from ..kubeadm.stored import EtcdGateway, rewrite, survey
from ..reasons import Reason
from ..result import Diff, Result
from ..rotation.encryption_key import FoundKeys, PlaneKeys, plan_rotation
from ..transport.sealed_box import OneTimeKey
from .answers import AnswerStore, decode
from .authorization import OfferStore
from .config import load_node_config
from .key_share import OFFERS, encode, open_orders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rotation.encryption_key import RotationPlan

_SELECTOR = "--selector=node-role.kubernetes.io/control-plane"


def run_encryption_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Say which keys this control plane has; raises what `PlaneEncryption.observe` raises."""
    found = _plane(params).observe(name=load_node_config(params["node_config"]).name)
    return Result(
        values={
            "node": found.name,
            "keys": [{"name": name, "fingerprint": value} for name, value in found.keys.items()],
            "in_force": found.lead,
            "taken": found.taken,
            "clear_first": found.clear_first,
        }
    )


def run_rotation_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Say what is left of a rotation; raises what `plan_rotation` and `survey` raise, and KUBECTL_FAILED."""
    nodes = _kubectl(params).read(("nodes",), _SELECTOR)
    counts = survey(EtcdGateway.local(KubernetesPaths())).counts
    found = FoundKeys(
        planes=[plane_of(one) for one in params["planes"]],
        members=frozenset(one["metadata"]["name"] for one in nodes),
        stored=counts,
    )
    return Result(values={**_shown(plan_rotation(found, old=params["old"])), "stored": counts})


def run_encryption_keys(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Make a key, or put those of this control plane in an order; raises what `PlaneEncryption` raises."""
    plane = _plane(params)
    if params["order"] is None:
        return Result(changed=True, values={} if check_mode else {"made": plane.make(random=SystemRandom())})
    box = params["sealed"]
    given = parse_keys(AnswerStore().take(params["handle"]).open(decode(box, "sealed"))) if box else {}
    wanted = plane.arrange(params["order"], given=given)
    before = plane.observe(name="").order
    changed = plane.differs(wanted) if check_mode else plane.place(wanted, _kubectl(params))
    return Result(changed=changed, diff=Diff(before=_lines(before), after=_lines(wanted.order)))


def run_encryption_share(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # writes tmpfs only
    """Offer a one-time key, or seal keys to the machines that the orders name."""
    offers = OfferStore(OFFERS)
    if params["orders"] is None:
        key = OneTimeKey.generate()
        return Result(values={"handle": offers.put(key), "offer": encode(key.public)})
    sealed = {str(node): decode(str(text), "orders") for node, text in params["orders"].items()}
    orders = open_orders(sealed, handle=params["handle"] or "", offers=offers)
    plane = _plane(params)
    return Result(
        values={
            "boxes": {node: encode(order.box(render_keys(plane.give(order.names)))) for node, order in orders.items()}
        }
    )


def run_stored_secrets(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Write Secrets again that another key closes, up to ``most``; raises what `rewrite` raises."""
    etcd = EtcdGateway.local(KubernetesPaths())
    if check_mode:
        found = survey(etcd)
        left = len(found.but(params["in_force"]))
        return Result(changed=bool(left), values={"done": 0, "left": left, "total": sum(found.counts.values())})
    done = rewrite(etcd, _kubectl(params), key=params["in_force"], most=params["most"])
    return Result(changed=bool(done.done), values={"done": done.done, "left": done.left, "total": done.total})


def plane_of(said: Mapping[str, Any]) -> PlaneKeys:
    """Return what `run_encryption_info` said on one control plane; raises OPTION_INVALID."""
    try:
        return PlaneKeys(
            name=str(said["node"]),
            keys={str(one["name"]): str(one["fingerprint"]) for one in said["keys"]},
            taken=said["taken"] is True,
            clear_first=said["clear_first"] is True,
        )
    except (KeyError, TypeError) as error:
        raise SystemFault(
            "expected results of the module encryption_info in planes, got something else", reason=Reason.OPTION_INVALID
        ) from error


def _shown(plan: RotationPlan) -> dict[str, Any]:
    return {
        "phases": [phase.value for phase in plan.phases],
        "successor": plan.successor,
        "source": plan.source,
        "missing": {name: list(keys) for name, keys in plan.missing.items()},
        "orders": {name: list(keys) for name, keys in plan.orders.items()},
    }


def _plane(params: Mapping[str, Any]) -> PlaneEncryption:
    paths = KubernetesPaths()
    return PlaneEncryption(paths, ApiServer(paths, _kubectl(params), clock=SystemClock()))


def _kubectl(params: Mapping[str, Any]) -> Kubectl:
    return Kubectl.of_a_module(params["kubeconfig"])


def _lines(names: tuple[str, ...]) -> str:
    return "".join(f"{name}\n" for name in names)
