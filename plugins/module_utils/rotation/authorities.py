# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which step the rotation of a cluster's authorities takes next, from what is found and from nothing else. Pure.

    make ──▶ share ──▶ trust ──▶ issue ──▶ retire ──▶ forget ──▶ done

    make    a successor of each authority, beside the files of one control plane; nothing uses it
    share   every control plane has the successors
    trust   everybody believes what either of the two signed; every component runs so
    issue   the successor signs, on one control plane after the other, and whatever the old one signed is made anew
    retire  nobody believes the old ones any more
    forget  the copies of the successors beside the files go

A key is named by 16 digits of the hash of its public half. There is no record of a rotation that could lie: a run that
was stopped anywhere begins by looking, as a new one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import PurePosixPath as Posix
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from .engine import phases_left, require_all, undone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime


# The authorities that every control plane holds, by name, and where their halves lie.

_PKI = Posix("etc/kubernetes/pki")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """One key that others believe: its name, and the files that say whom to believe and what to sign with.

    ``public`` may hold several, the one of ``private`` first. Paths are relative to the root of the machine.
    ``signs_certificates``: it is a CA; otherwise its public half is a bare key.
    """

    name: str
    public: Posix
    private: Posix
    signs_certificates: bool = True


CLUSTER = Authority(name="cluster", public=_PKI / "ca.crt", private=_PKI / "ca.key")
ETCD = Authority(name="etcd", public=_PKI / "etcd/ca.crt", private=_PKI / "etcd/ca.key")
FRONT_PROXY = Authority(name="front-proxy", public=_PKI / "front-proxy-ca.crt", private=_PKI / "front-proxy-ca.key")
SERVICE_ACCOUNTS = Authority(
    name="service-accounts", public=_PKI / "sa.pub", private=_PKI / "sa.key", signs_certificates=False
)

AUTHORITIES = (CLUSTER, ETCD, FRONT_PROXY, SERVICE_ACCOUNTS)
"""They go together: a machine that held one of them held them all."""

CERTIFYING = tuple(one for one in AUTHORITIES if one.signs_certificates)


TOKEN_LIFE = timedelta(hours=1)
"""A kubelet has the token of a pod made anew before it is an hour old; until then the pod shows one of the old key."""


class AuthorityPhase(Enum):
    """The steps, in their order."""

    MAKE = "make"
    SHARE = "share"
    TRUST = "trust"
    ISSUE = "issue"
    RETIRE = "retire"
    FORGET = "forget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneAuthorities:
    """One control plane, each by the authority's name: what signs, whom its files believe, who signed what it shows.

    ``issued`` is of CAs alone; a signer that it does not believe has an empty name. ``staged`` are the successors that
    lie beside. ``taken``: its components run with the files as they are. ``since``: when its tokens got their key.
    """

    name: str
    signers: Mapping[str, str]
    trusted: Mapping[str, tuple[str, ...]]
    issued: Mapping[str, frozenset[str]]
    staged: Mapping[str, str]
    taken: bool
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletAuthorities:
    """One node's kubelet: which cluster CAs it believes, and which one signed for it.

    ``trusted``: as client and as server. ``named``: as either; empty where that is the same.
    """

    name: str
    trusted: frozenset[str]
    issued: str
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAuthorities:
    """Everything that was found: who answered, and the names of all control planes and nodes of the cluster."""

    planes: Sequence[PlaneAuthorities]
    kubelets: Sequence[KubeletAuthorities]
    members: frozenset[str]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityPlan:
    """What is left of a rotation, none at its end.

    ``successors`` by authority, empty before they are made; ``source`` has them. ``bundles``: whom each control plane
    that the first phase changes is to believe then, by name and authority. ``kubelets``: those that need a ticket
    for it. ``waits_until``: before that the first phase would refuse tokens that are good.
    """

    phases: tuple[AuthorityPhase, ...]
    successors: Mapping[str, str]
    source: str
    bundles: Mapping[str, Mapping[str, tuple[str, ...]]]
    kubelets: tuple[str, ...] = ()
    waits_until: datetime | None = None


def plan_authorities(found: FoundAuthorities, *, old: str, now: datetime) -> AuthorityPlan:
    """Return what is to do until nothing is left of the authorities that go with the cluster CA ``old``.

    A rotation that was begun is ended first, whatever ``old`` is. Raises ROTATION_NODES_UNREACHED (not every control
    plane and kubelet answered, or more than the cluster has) and AUTHORITIES_DIFFER (two sets of successors, or
    control planes that do not hold the same where nothing was begun).
    """
    groups = (("control plane", found.planes, found.members), ("kubelet", found.kubelets, found.nodes))
    for what, answered, known in groups:
        names = {one.name for one in answered}
        require_all(what, names, known)
    successors = _successors(found.planes)
    if successors:
        return _goes_on(found, successors, now)
    _require_alike(found.planes)
    source = min(one.name for one in found.planes)
    phases = tuple(AuthorityPhase) if found.planes[0].signers[CLUSTER.name] == old else ()
    return AuthorityPlan(phases=phases, successors={}, source=source, bundles={})


def _goes_on(found: FoundAuthorities, successors: Mapping[str, str], now: datetime) -> AuthorityPlan:
    needed = _needed(found, successors)
    planes = undone(found.planes, _on_planes(needed, successors))
    kubelets = undone(found.kubelets, _on_kubelets(needed[CLUSTER.name], successors[CLUSTER.name]))
    phases = phases_left(AuthorityPhase, planes, kubelets)
    first = phases[0]  # one is left: FORGET, as long as successors are staged
    until = max(one.since for one in found.planes) + TOKEN_LIFE
    return AuthorityPlan(
        phases=phases,
        successors=successors,
        source=min(one.name for one in found.planes if one.staged == successors),
        bundles={one.name: _bundles(one, first, needed, successors) for one in planes.get(first, ())},
        kubelets=tuple(one.name for one in kubelets.get(first, ())),
        waits_until=until if first is AuthorityPhase.RETIRE and now < until else None,
    )


def _on_planes(
    needed: Mapping[str, frozenset[str]], successors: Mapping[str, str]
) -> dict[AuthorityPhase, Callable[[PlaneAuthorities], bool]]:
    """Return by phase how a control plane looks on which it is done."""
    alone = {name: (successor,) for name, successor in successors.items()}
    certified = {one.name: frozenset({successors[one.name]}) for one in CERTIFYING}
    return {
        AuthorityPhase.SHARE: lambda one: (
            one.staged == successors or (one.signers == successors and one.trusted == alone)
        ),
        AuthorityPhase.TRUST: lambda one: one.taken and all(needed[name] <= set(one.trusted[name]) for name in needed),
        AuthorityPhase.ISSUE: lambda one: one.signers == successors and one.issued == certified,
        AuthorityPhase.RETIRE: lambda one: one.taken and one.trusted == alone,
        AuthorityPhase.FORGET: lambda one: not one.staged,
    }


def _on_kubelets(needed: frozenset[str], successor: str) -> dict[AuthorityPhase, Callable[[KubeletAuthorities], bool]]:
    return {
        AuthorityPhase.TRUST: lambda one: needed <= one.trusted,
        AuthorityPhase.ISSUE: lambda one: one.issued == successor,
        AuthorityPhase.RETIRE: lambda one: one.trusted | one.named == {successor},
    }


def _needed(found: FoundAuthorities, successors: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return by authority whom everybody must believe: what signs anywhere, what anybody shows, what is to come."""
    needed = {}
    for one in AUTHORITIES:
        shown = {name for plane in found.planes for name in plane.issued.get(one.name, ())}
        shown |= {plane.signers[one.name] for plane in found.planes}
        if one is CLUSTER:
            shown |= {kubelet.issued for kubelet in found.kubelets}
        needed[one.name] = frozenset(shown | {successors[one.name]}) - {""}
    return needed


def _bundles(
    plane: PlaneAuthorities,
    phase: AuthorityPhase,
    needed: Mapping[str, frozenset[str]],
    successors: Mapping[str, str],
) -> dict[str, tuple[str, ...]]:
    """Return by authority whom its files name after the phase; whoever signs is the first."""
    if phase is AuthorityPhase.RETIRE:
        return {name: (successor,) for name, successor in successors.items()}
    bundles = {}
    for name, believed in needed.items():
        first = successors[name] if phase is AuthorityPhase.ISSUE else plane.signers[name]
        others = [*plane.trusted[name], *sorted(believed)]
        bundles[name] = tuple(dict.fromkeys([first, *others]))
    return bundles


def _successors(planes: Sequence[PlaneAuthorities]) -> dict[str, str]:
    """Return the one set of successors that lies beside files, nothing where none does."""
    sets = {tuple(sorted(one.staged.items())) for one in planes if one.staged}
    if len(sets) > 1:
        raise _differ("expected one set of successors on the control planes, found several")
    found = dict(sets.pop()) if sets else {}
    if found and set(found) != {one.name for one in AUTHORITIES}:
        raise _differ(f"expected a successor of each authority, found those of {', '.join(sorted(found))}")
    return found


def _require_alike(planes: Sequence[PlaneAuthorities]) -> None:
    """Nothing was begun: every control plane signs with the same keys and believes these and no others."""
    first = planes[0]
    for plane in planes:
        for name, signer in first.signers.items():
            if plane.signers[name] != signer or plane.trusted[name] != (signer,):
                raise _differ(
                    f"expected {name} on {plane.name} to be {signer} alone, as it signs on {first.name}; "
                    f"it signs with {plane.signers[name]} and believes {', '.join(plane.trusted[name])}"
                )


def _differ(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.AUTHORITIES_DIFFER)
