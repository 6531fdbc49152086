# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the next phase of a rotation of the cluster's authorities, only from the inspected state. Pure.

    make ──▶ share ──▶ trust ──▶ issue ──▶ retire ──▶ forget ──▶ done

    make    create a successor of each authority, staged next to the files of one control plane and not used
    share   copy the staged successors to every control plane
    trust   trust the old authorities and the successors, and restart every component with these bundles
    issue   sign with the successors, one control plane after the other, and renew all that the old ones signed
    retire  remove the old authorities from all trust bundles
    forget  delete the staged copies of the successors

A key is named by 16 digits of the hash of its public key. No state of a rotation is stored, so none can be wrong: an
interrupted run and a new run start with the same inspection.
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


# The authorities of every control plane, by name, with the paths of their public and private files.

_PKI = Posix("etc/kubernetes/pki")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """One signing key: its name, the file of the trusted certificates or public keys, and the private key's file.

    ``public`` may hold several, the one of ``private`` first. Paths are relative to the machine's root directory.
    ``signs_certificates``: the authority is a CA; otherwise ``public`` holds public keys and no certificates.
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
"""They are rotated together, because a machine that held one of them held all of them."""

CERTIFYING = tuple(one for one in AUTHORITIES if one.signs_certificates)


TOKEN_LIFE = timedelta(hours=1)
"""A kubelet renews the token of a pod within an hour; until then the pod uses a token that the old key signed."""


class AuthorityPhase(Enum):
    """The phases, in their order."""

    MAKE = "make"
    SHARE = "share"
    TRUST = "trust"
    ISSUE = "issue"
    RETIRE = "retire"
    FORGET = "forget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneAuthorities:
    """One control plane, by authority: its signing key, its trusted keys, and the issuers of its certificates.

    ``issued`` is only for CAs; an issuer that the control plane does not trust has an empty name. ``staged``: the
    staged successors. ``taken``: its components run with the current files. ``since``: since when the key of its
    service account tokens is in use.
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
    """One node's kubelet: the cluster CAs that it trusts, and the issuer of its certificate.

    ``trusted``: the CAs that it trusts both as client and as server. ``named``: the CAs that it trusts as either; may
    be empty if they are the same.
    """

    name: str
    trusted: frozenset[str]
    issued: str
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAuthorities:
    """The inspected state: the control planes and kubelets, and the names of all control planes and nodes."""

    planes: Sequence[PlaneAuthorities]
    kubelets: Sequence[KubeletAuthorities]
    members: frozenset[str]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityPlan:
    """The phases of a rotation that are left; none at its end.

    ``successors``: by authority, empty before they are created; ``source``: the control plane that has them.
    ``bundles``: the keys to trust after the first phase, by authority, of each control plane that it changes.
    ``kubelets``: the nodes whose kubelets need a ticket in the first phase. ``waits_until``: before that time the first
    phase would invalidate tokens in use.
    """

    phases: tuple[AuthorityPhase, ...]
    successors: Mapping[str, str]
    source: str
    bundles: Mapping[str, Mapping[str, tuple[str, ...]]]
    kubelets: tuple[str, ...] = ()
    waits_until: datetime | None = None


def plan_authorities(found: FoundAuthorities, *, old: str, now: datetime) -> AuthorityPlan:
    """Return the phases until the authorities of the cluster CA ``old`` are removed.

    An interrupted rotation is completed first, whatever ``old`` is. Raises ROTATION_NODES_UNREACHED (the inspected
    control planes and kubelets are not exactly those of the cluster) and AUTHORITIES_DIFFER (two sets of successors,
    or control planes with different authorities without a rotation).
    """
    groups = (("control plane", found.planes, found.members), ("kubelet", found.kubelets, found.nodes))
    for what, answered, known in groups:
        names = {one.name for one in answered}
        require_all(what, names, known)
    successors = _successors(found.planes)
    if successors:
        return _continued(found, successors, now)
    _require_alike(found.planes)
    source = min(one.name for one in found.planes)
    phases = tuple(AuthorityPhase) if found.planes[0].signers[CLUSTER.name] == old else ()
    return AuthorityPlan(phases=phases, successors={}, source=source, bundles={})


def _continued(found: FoundAuthorities, successors: Mapping[str, str], now: datetime) -> AuthorityPlan:
    needed = _needed(found, successors)
    planes = undone(found.planes, _on_planes(needed, successors))
    kubelets = undone(found.kubelets, _on_kubelets(needed[CLUSTER.name], successors[CLUSTER.name]))
    phases = phases_left(AuthorityPhase, planes, kubelets)
    first = phases[0]  # FORGET at least is left, because successors are staged
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
    """Return for each phase the check whether it is done on a control plane."""
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
    """Return by authority the keys that must be trusted: all signers, all issuers of certificates, the successor."""
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
    """Return by authority the keys that the control plane trusts after the phase, its signing key first."""
    if phase is AuthorityPhase.RETIRE:
        return {name: (successor,) for name, successor in successors.items()}
    bundles = {}
    for name, trusted in needed.items():
        first = successors[name] if phase is AuthorityPhase.ISSUE else plane.signers[name]
        others = [*plane.trusted[name], *sorted(trusted)]
        bundles[name] = tuple(dict.fromkeys([first, *others]))
    return bundles


def _successors(planes: Sequence[PlaneAuthorities]) -> dict[str, str]:
    """Return the one set of staged successors; empty if there is none."""
    sets = {tuple(sorted(one.staged.items())) for one in planes if one.staged}
    if len(sets) > 1:
        raise _differ("expected one set of successors on the control planes, found several")
    found = dict(sets.pop()) if sets else {}
    if found and set(found) != {one.name for one in AUTHORITIES}:
        raise _differ(f"expected a successor of each authority, found those of {', '.join(sorted(found))}")
    return found


def _require_alike(planes: Sequence[PlaneAuthorities]) -> None:
    """Raise AUTHORITIES_DIFFER unless all control planes sign with the same keys and trust only these keys."""
    first = planes[0]
    for plane in planes:
        for name, signer in first.signers.items():
            if plane.signers[name] != signer or plane.trusted[name] != (signer,):
                raise _differ(
                    f"expected {name} on {plane.name} to be {signer} alone, as it signs on {first.name}; "
                    f"it signs with {plane.signers[name]} and trusts {', '.join(plane.trusted[name])}"
                )


def _differ(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.AUTHORITIES_DIFFER)
