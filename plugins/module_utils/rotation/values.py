# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert the reports of nodes and the plan of a rotation from and to plain values for Ansible. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import SystemFault
from ..reasons import Reason
from .authorities import (
    CLUSTER,
    AuthorityPhase,
    FoundAuthorities,
    KubeletAuthorities,
    PlaneAuthorities,
    plan_authorities,
)
from .encryption_key import FoundKeys, PlaneKeys, RotationPhase
from .encryption_key import plan_rotation as plan_encryption_key
from .master_secret import FoundVersions, MasterPhase, PlaneVersions
from .master_secret import plan_rotation as plan_master_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OF_KEY_SERVICES = (MasterPhase.SHARE, MasterPhase.LEAD, MasterPhase.RETIRE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts of the cluster: its nodes, the time, the number of Secrets in etcd by key, the versions of the site."""

    nodes: frozenset[str]
    control_planes: frozenset[str]
    now: datetime
    stored: Mapping[str, int]
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node's part of the first phase of a plan.

    ``change``: the state of the node after the phase. ``known``: the certificates and public keys (PEM) by name.
    """

    node: str
    phase: str
    change: Mapping[str, Any]
    known: Mapping[str, str]

    @classmethod
    def of(cls, plan: Mapping[str, Any], node: str, *, kind: str) -> Step:
        """Return the part of ``node``; raises OPTION_INVALID if the plan has another kind or does not change it."""
        try:
            phase, change = str(plan["phases"][0]), dict(plan["changes"][node])
            known = {str(name): str(pem) for name, pem in plan.get("known", {}).items()}
            if plan["kind"] != kind:
                raise ValueError(kind)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise SystemFault(
                f"expected a plan of the module rotation for {kind} whose first phase changes {node}, got another one",
                reason=Reason.OPTION_INVALID,
            ) from None
        return cls(node=node, phase=phase, change=change, known=known)


def plan_values(kind: str, results: Sequence[Mapping[str, Any]], facts: ClusterFacts, *, old: str) -> dict[str, Any]:
    """Return the plan of a rotation of ``kind`` from the results of `rotation_info` on each node.

    ``phases``: the phases that are left, in order. ``successor``: the new key, "" before it is created. ``source``: the
    node that creates the key or has it for the others. ``changes``: the new state of each node that the first phase
    changes. ``receives``: by node, the names of the keys from the source. Raises as the planner of that rotation, and
    OPTION_INVALID.
    """
    planner = {"authorities": _authorities, "encryption_key": _encryption_key, "master_secret": _master_secret}[kind]
    return {"kind": kind, **planner(results, facts, old)}


def facts_of(result: Mapping[str, Any], *, versions: Sequence[str] = ()) -> ClusterFacts:
    """Return the facts of a result of `rotation_info`, with the ``versions`` of the site; raises OPTION_INVALID."""
    try:
        return ClusterFacts(
            nodes=frozenset(map(str, result["nodes"])),
            control_planes=frozenset(map(str, result["control_planes"])),
            now=datetime.fromisoformat(result["now"]),
            stored={str(name): int(count) for name, count in result["stored"].items()},
            versions=tuple(versions),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_results() from error


def show_plane(plane: PlaneAuthorities) -> dict[str, Any]:
    """Return the authorities of one control plane as plain values."""
    return {
        "name": plane.name,
        "signers": dict(plane.signers),
        "trusted": _lists(plane.trusted),
        "issued": {name: sorted(keys) for name, keys in plane.issued.items()},
        "staged": dict(plane.staged),
        "taken": plane.taken,
        "since": plane.since.isoformat(),
    }


def parse_plane(values: Mapping[str, Any]) -> PlaneAuthorities:
    """Return the authorities from the values of `show_plane`.

    Raises `KeyError`, `TypeError`, `ValueError`, `AttributeError`.
    """
    return PlaneAuthorities(
        name=str(values["name"]),
        signers=dict(values["signers"]),
        trusted=bundles_of(values["trusted"]),
        issued={str(name): frozenset(keys) for name, keys in values["issued"].items()},
        staged=dict(values["staged"]),
        taken=values["taken"] is True,
        since=datetime.fromisoformat(values["since"]),
    )


def show_kubelet(kubelet: KubeletAuthorities) -> dict[str, Any]:
    """Return one kubelet as plain values."""
    return {
        "name": kubelet.name,
        "trusted": sorted(kubelet.trusted),
        "named": sorted(kubelet.named),
        "issued": kubelet.issued,
    }


def parse_kubelet(values: Mapping[str, Any]) -> KubeletAuthorities:
    """Return the kubelet from the values of `show_kubelet`; raises `KeyError`, `TypeError`."""
    trusted, named = frozenset(values["trusted"]), frozenset(values["named"])
    return KubeletAuthorities(name=str(values["name"]), trusted=trusted, named=named, issued=str(values["issued"]))


def show_keys(plane: PlaneKeys) -> dict[str, Any]:
    """Return the encryption keys of one control plane as plain values: only names and fingerprints."""
    return {
        "node": plane.name,
        "keys": [{"name": name, "fingerprint": value} for name, value in plane.keys.items()],
        "in_force": plane.lead,
        "taken": plane.taken,
        "clear_first": plane.clear_first,
    }


def parse_keys(values: Mapping[str, Any]) -> PlaneKeys:
    """Return the keys from the values of `show_keys`; raises `KeyError`, `TypeError`."""
    return PlaneKeys(
        name=str(values["node"]),
        keys={str(one["name"]): str(one["fingerprint"]) for one in values["keys"]},
        taken=values["taken"] is True,
        clear_first=values["clear_first"] is True,
    )


def bundles_of(values: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the trusted keys by authority from plain values."""
    return {str(name): tuple(keys) for name, keys in values.items()}


def _authorities(results: Sequence[Mapping[str, Any]], facts: ClusterFacts, old: str) -> dict[str, Any]:
    try:
        planes = [parse_plane(one["plane"]) for one in results if one["plane"]]
        kubelets = [parse_kubelet(one["kubelet"]) for one in results]
        known = {str(name): str(pem) for one in results for name, pem in one["known"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_results() from error
    found = FoundAuthorities(planes=planes, kubelets=kubelets, members=facts.control_planes, nodes=facts.nodes)
    todo = plan_authorities(found, old=old, now=facts.now)
    first = todo.phases[:1]
    bundles = {node: _lists(bundles) for node, bundles in todo.bundles.items()}
    return {
        "phases": [phase.value for phase in todo.phases],
        "successor": todo.successors.get(CLUSTER.name, ""),
        "source": todo.source,
        "changes": {todo.source: {}} if first == (AuthorityPhase.MAKE,) else bundles,
        "receives": {node: sorted(todo.successors) for node in bundles} if first == (AuthorityPhase.SHARE,) else {},
        "kubelets": list(todo.kubelets),
        "waits_until": f"{todo.waits_until:%Y-%m-%dT%H:%M:%SZ}" if todo.waits_until else "",
        "known": known,
        "in_force": sorted({one.signers[CLUSTER.name] for one in planes}),
    }


def _encryption_key(results: Sequence[Mapping[str, Any]], facts: ClusterFacts, old: str) -> dict[str, Any]:
    try:
        planes = [parse_keys(one) for one in results]
    except (KeyError, TypeError) as error:
        raise _not_results() from error
    found = FoundKeys(planes=planes, members=facts.control_planes, stored=facts.stored)
    todo = plan_encryption_key(found, old=old)
    first = todo.phases[0] if todo.phases else RotationPhase.REWRITE
    orders = {name: {"keys": list(keys)} for name, keys in todo.orders.items()}
    changes: dict[RotationPhase, dict[str, Any]] = {
        RotationPhase.MAKE: {todo.source: {}},
        RotationPhase.REWRITE: {},
    }
    return {
        "phases": [phase.value for phase in todo.phases],
        "successor": todo.successor,
        "source": todo.source,
        "changes": changes.get(first, orders),
        "receives": _lists(todo.missing),
        "stored": dict(facts.stored),
    }


def _master_secret(results: Sequence[Mapping[str, Any]], facts: ClusterFacts, old: str) -> dict[str, Any]:
    try:
        planes = [
            PlaneVersions(
                name=str(one["node"]), names=tuple(map(str, one["plane"]["names"])), taken=one["plane"]["taken"] is True
            )
            for one in results
            if one["plane"] is not None and one["node"] in facts.control_planes
        ]
        disks = {str(one["node"]): one["disk"] if one["disk"] is None else str(one["disk"]) for one in results}
    except (KeyError, TypeError) as error:
        raise _not_results() from error
    found = FoundVersions(
        site=facts.versions, planes=planes, members=facts.control_planes, disks=disks, nodes=facts.nodes
    )
    todo = plan_master_secret(found, old=old)
    first = todo.phases[0] if todo.phases else None
    order, alone = {"names": list(todo.order)}, {"names": [todo.successor]}
    changes = {one.name: order for one in planes} if first in _OF_KEY_SERVICES else {}
    return {
        "phases": [phase.value for phase in todo.phases],
        "successor": todo.successor,
        "source": "",
        "changes": dict.fromkeys(todo.disks, alone) if first is MasterPhase.REKEY else changes,
        "receives": {},
        "disks": list(todo.disks),
        "versions": list(facts.versions),
    }


def _not_results() -> SystemFault:
    return SystemFault(
        "expected results of the module rotation_info in found, got something else", reason=Reason.OPTION_INVALID
    )


def _lists(names: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: list(keys) for name, keys in names.items()}
