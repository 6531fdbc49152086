# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the next policy of a site: its content, its generation, and the nodes that would fail it now. Pure.

The site is the author; the state of the cluster only adds to it. Every revocation that a control plane or an object
has is signed as well, and the generation is higher than any known one. An admin takes a mistaken revocation back by
name, once: the policy then lists the machine as reinstated, until it is revoked again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError, SiteError
from ..policy.assertions import PROGRAM_REGISTER, Assertions
from ..policy.cluster import ClusterPolicy, NamedDigest, PolicyException, plan_policy, profile_sha256
from ..policy.decision import MeasurementMismatch, decide
from ..policy.identity import Admission, Role
from ..policy.in_force import CountingProfiles
from ..policy.profile import Applicant
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..policy.assertions import BootFacts
    from ..policy.identity import NodeIdentity
    from ..policy.profile import MeasurementProfile
    from .site_directory import PolicyMark


# Predict whether profiles that are not in force yet would admit a node, with the code of the admission. Pure.
#
# The identity's status holds the register values that were judged last, and no event log. So the assertions of a
# profile, and registers that were not quoted then, cannot be judged from it. An unknown is neither a pass nor a
# refusal.


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """A node by its identity's status: the profile that allowed it last, and the register values that were judged.

    ``facts`` are proven by the logs of fresh evidence, and ``registers`` come from that evidence then; None: there is
    no log. ``evidence_missing`` says why requested fresh evidence is missing. ``ek_alias``: as in `NodeIdentity`.
    ``applied``: the `applied_sha256` of the identity's object.
    """

    node_name: str
    ek_sha256: str
    revoked: bool
    phase: str
    profile: str
    registers: Mapping[int, bytes]
    facts: BootFacts | None = None
    evidence_missing: str = ""
    ek_alias: str = ""
    role: Role = Role.WORKER
    applied: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its endorsement keys."""
        return (self.ek_sha256, self.ek_alias) if self.ek_alias else (self.ek_sha256,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A node that the next policy would refuse in its last attested state, and what deviates."""

    node_name: str
    profile: str
    why: str = ""

    def __str__(self) -> str:
        """Return a sentence."""
        why = f" ({self.why})" if self.why else ""
        return f"{self.node_name} would fail: it was attested as {self.profile or 'nothing'} last{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A node for which it is not known whether the next policy refuses it."""

    node_name: str
    why: str

    def __str__(self) -> str:
        """Return a sentence."""
        return f"{self.node_name}: not known whether it would fail, {self.why}"


def outlook(node: LastSeen, profiles: Sequence[MeasurementProfile], *, now: datetime) -> Failing | Unknown | None:
    """Return the outcome of ``node`` under ``profiles``, those that would be in force for it; None: it is admitted.

    1. A profile whose demands can all be judged admits it.
    2. A profile with demands that cannot be judged may admit it: its other demands are met.
    3. No profile can admit it.
    """
    usable = [one for one in profiles if not one.accepts_no_machine]
    if _refusal(node, [one for one in usable if _missing(one, node) is None], now) is None:  # 1
        return None
    for profile in usable:
        missing = _missing(profile, node)
        if missing is not None and _might(profile, node, now):  # 2
            evidence_missing = f"; {node.evidence_missing}" if node.evidence_missing else ""
            return Unknown(node_name=node.node_name, why=f"{profile.name} asks for {missing}{evidence_missing}")
    refusal = _refusal(node, [_known_part(one, node) for one in usable], now)  # 3
    return Failing(node_name=node.node_name, profile=node.profile, why=_deviating(refusal))


def _missing(profile: MeasurementProfile, node: LastSeen) -> str | None:
    """Return the demands of the profile that cannot be judged for the node, None if all can."""
    values = [str(pcr) for pcr in sorted(profile.registers) if pcr not in node.registers]
    if values:
        return f"PCR {', '.join(values)}, of which no value is at hand"
    if node.facts is None and profile.assertions != Assertions():
        return "what an event log proves, and none is at hand"
    return None


def _might(profile: MeasurementProfile, node: LastSeen, now: datetime) -> bool:
    part = _known_part(profile, node)
    return not part.registers or _refusal(node, [part], now) is None


def _known_part(profile: MeasurementProfile, node: LastSeen) -> MeasurementProfile:
    """Return the part of the profile that can be judged for the node; if it is less, its result alone is no answer.

    The register of the programs shows which program measured: without its value no assertion can be judged.
    """
    unjudged = node.facts is None or (PROGRAM_REGISTER in profile.registers and PROGRAM_REGISTER not in node.registers)
    return replace(
        profile,
        registers={pcr: values for pcr, values in profile.registers.items() if pcr in node.registers},
        assertions=Assertions() if unjudged else profile.assertions,
    )


def _refusal(node: LastSeen, profiles: Sequence[MeasurementProfile], now: datetime) -> PolicyError | None:
    """Return why the admission would refuse, None if it would not."""
    try:
        applicant = Applicant(role=node.role, ek_sha256=node.ek_sha256)
        decide(profiles, node.registers, (), facts=node.facts, now=now, applicant=applicant)
    except PolicyError as error:
        return error
    return None


def _deviating(refusal: PolicyError | None) -> str:
    if not isinstance(refusal, MeasurementMismatch):
        return "no profile is in force for it"
    registers = [f"PCR {one.pcr}" for one in refusal.registers]
    found = [*registers, *(f"{one.reason.name}: {one}" for one in refusal.assertions)] or [refusal.code]
    return f"nearest {refusal.nearest}: {', '.join(found)}"


LONGEST_EXCEPTION = timedelta(days=14)
_JOINED = "Joined"
_LONGEST_WHY = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state of the cluster: the verified policy of the API, the control planes' records, and the identities."""

    policy: ClusterPolicy | None
    generations: tuple[int, ...]
    revoked: frozenset[str]
    nodes: tuple[LastSeen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPlan:
    """The next policy, the identities to apply, and the nodes that would fail; ``changed`` against API and site.

    ``unknown``: nodes for which it is not known whether they would fail, if the policy takes anything away at all.
    ``returning``: identities that the API still revokes; they are applied after the policy.
    """

    policy: ClusterPolicy
    identities: tuple[NodeIdentity, ...]
    returning: tuple[NodeIdentity, ...]
    failing: tuple[Failing, ...]
    unknown: tuple[Unknown, ...]
    changed: bool


def plan_next(
    *,
    profiles: Sequence[MeasurementProfile],
    identities: Sequence[NodeIdentity],
    exceptions: Sequence[PolicyException],
    excepted: Sequence[MeasurementProfile],
    mark: PolicyMark,
    observed: Observed,
    now: datetime,
    reinstate: frozenset[str] = frozenset(),
) -> PolicyPlan:
    """Return the plan for the site's next policy; the same content keeps its generation.

    ``excepted`` are the profiles that ``exceptions`` name; ``reinstate`` are the keys whose revocation is taken back
    now.
    """
    signed = frozenset(observed.policy.revoked) if observed.policy else frozenset()
    banned = {one.ek_sha256 for one in observed.nodes if one.revoked}
    banned |= {one.ek_sha256 for one in identities if one.admission is Admission.REVOKED}
    chips = [*(one.keys for one in identities), *(one.keys for one in observed.nodes)]
    known = _whole_chips(signed | observed.revoked | banned | frozenset(mark.revoked), chips)
    before = frozenset(observed.policy.reinstated) if observed.policy else frozenset[str]()
    reinstated = (_whole_chips(reinstate, chips) & known) | (before - _whole_chips(frozenset(banned), chips))
    revoked = known - reinstated
    wanted = plan_policy(
        generation=0,
        profiles=profiles,
        identities=identities,
        revoked=revoked,
        exceptions=exceptions,
        reinstated=reinstated,
    )
    policy = replace(wanted, generation=_generation(wanted, mark, observed))
    found = _outlooks(policy, (*profiles, *excepted), _concerned(observed), now)
    still = frozenset(one.ek_sha256 for one in observed.nodes if one.revoked) & reinstated
    applied = tuple(_applied(one, revoked) for one in identities)
    return PolicyPlan(
        policy=policy,
        identities=tuple(one for one in applied if one.ek_sha256 not in still),
        returning=tuple(one for one in applied if one.ek_sha256 in still),
        failing=tuple(one for one in found if isinstance(one, Failing)),
        unknown=tuple(one for one in found if isinstance(one, Unknown)) if _takes_away(observed.policy, policy) else (),
        changed=observed.policy != policy or mark.generation != policy.generation,
    )


def read_exceptions(
    wanted: Iterable[Mapping[str, Any]],
    *,
    profiles: Mapping[str, MeasurementProfile],
    keys: Mapping[str, tuple[str, ...]],
) -> tuple[PolicyException, ...]:
    """Return the exceptions of ``attested_policy_exceptions``; raises SITE_POLICY_EXCEPTION naming every problem.

    ``keys``: node name to its endorsement keys, which are all part of an exception. Each item of ``wanted`` has
    ``profile``, ``nodes``, ``until`` (UTC) and ``why``.
    """
    problems: list[str] = []
    found = tuple(_exception(one, profiles, keys, problems) for one in wanted)
    if problems:
        raise SiteError("; ".join(problems), reason=Reason.SITE_POLICY_EXCEPTION)
    return tuple(one for one in found if one is not None)


def reinstated_keys(names: Iterable[str], identities: Iterable[NodeIdentity]) -> frozenset[str]:
    """Return the keys of the nodes whose revocation is taken back; raises SITE_INVENTORY if the site revokes one."""
    live = {one.node_name: one for one in identities if one.admission is not Admission.REVOKED}
    wrong = sorted(name for name in names if name not in live)
    if wrong:
        raise SiteError(
            f"expected enrolled nodes whose attested_admission in host_vars is not Revoked (any more), since their "
            f"revocation is taken back, got {', '.join(wrong)}",
            reason=Reason.SITE_INVENTORY,
        )
    return frozenset(key for name in names for key in live[name].keys)


def require_short(exceptions: Iterable[PolicyException], *, now: datetime) -> None:
    """Raise SITE_POLICY_EXCEPTION if an exception lasts longer than `LONGEST_EXCEPTION`."""
    late = [one for one in exceptions if one.expires > now + LONGEST_EXCEPTION]
    if late:
        raise SiteError(
            f"expected exceptions of at most {LONGEST_EXCEPTION.days} days, "
            f"{late[0].profile.name} is to last until {late[0].expires.isoformat()}",
            reason=Reason.SITE_POLICY_EXCEPTION,
        )


def require_accepted(plan: PolicyPlan, *, accepted: bool) -> None:
    """Raise POLICY_WOULD_REFUSE or POLICY_OUTLOOK_UNKNOWN, unless the admin accepted the plan."""
    if accepted:
        return
    if plan.failing:
        raise PolicyError(
            f"expected a policy that every joined node meets now, {'; '.join(map(str, plan.failing))}",
            reason=Reason.POLICY_WOULD_REFUSE,
        )
    if plan.unknown:
        raise PolicyError(
            f"expected to know of every joined node that it meets the policy, {'; '.join(map(str, plan.unknown))}",
            reason=Reason.POLICY_OUTLOOK_UNKNOWN,
        )


def _generation(wanted: ClusterPolicy, mark: PolicyMark, observed: Observed) -> int:
    same = [mark.generation] if mark.content_sha256 == wanted.content_sha256 else []
    known = [mark.generation, *observed.generations]
    if observed.policy is not None:
        known.append(observed.policy.generation)
        same += [observed.policy.generation] if observed.policy.content_sha256 == wanted.content_sha256 else []
    highest = max(known)
    return highest if highest in same else highest + 1


def _applied(identity: NodeIdentity, revoked: frozenset[str]) -> NodeIdentity:
    """Return the identity to apply: the inventory may still list a revoked machine as approved."""
    return identity if revoked.isdisjoint(identity.keys) else replace(identity, admission=Admission.REVOKED)


def _whole_chips(revoked: frozenset[str], chips: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return ``revoked`` with all keys of each TPM that has one of them."""
    return revoked.union(*(keys for keys in chips if not revoked.isdisjoint(keys)))


def _concerned(observed: Observed) -> Iterable[LastSeen]:
    """Return the joined nodes of the cluster, also those without a record.

    For the first policy only nodes with a record: the founder gives its first evidence later.
    """
    joined = (one for one in observed.nodes if one.phase == _JOINED and not one.revoked)
    return joined if observed.policy is not None else (one for one in joined if one.profile)


def _outlooks(
    policy: ClusterPolicy, profiles: Sequence[MeasurementProfile], nodes: Iterable[LastSeen], now: datetime
) -> tuple[Failing | Unknown, ...]:
    counting = CountingProfiles(policy, profiles)
    found = [outlook(node, counting.for_machine(node.ek_sha256, now=now), now=now) for node in nodes]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.node_name))


def _takes_away(before: ClusterPolicy | None, after: ClusterPolicy) -> bool:
    """Return whether a profile or an exception is removed; additional ones never refuse more."""
    if before is None:
        return True
    return not (set(before.profiles) <= set(after.profiles) and set(before.exceptions) <= set(after.exceptions))


def _exception(
    wanted: Mapping[str, Any],
    profiles: Mapping[str, MeasurementProfile],
    keys: Mapping[str, tuple[str, ...]],
    problems: list[str],
) -> PolicyException | None:
    name, nodes = str(wanted.get("profile", "")), [str(one) for one in wanted.get("nodes") or ()]
    wrong = [f"unknown field {one}" for one in sorted(set(wanted) - {"profile", "nodes", "until", "why"})]
    if name not in profiles:
        wrong.append(f"expected a profile of the policy directory, got {name!r}")
    wrong += [f"expected an enrolled node, got {one!r}" for one in nodes if one not in keys]
    if not nodes:
        wrong.append("expected at least one node")
    until, why = _until(wanted.get("until")), str(wanted.get("why", "")).strip()
    if until is None:
        wrong.append(f"expected until as a time like 2026-11-21T12:00:00Z, got {wanted.get('until')!r}")
    if not (why and why.isprintable() and len(why) <= _LONGEST_WHY):
        wrong.append(f"expected why, in one line of at most {_LONGEST_WHY} characters")
    problems += [f"exception {name!r}: {one}" for one in wrong]
    if wrong or until is None:
        return None
    digest = NamedDigest(name, profile_sha256(profiles[name]))
    machines = tuple(sorted({key for one in nodes for key in keys[one]}))
    return PolicyException(profile=digest, machines=machines, expires=until, why=why)


def _until(value: Any) -> datetime | None:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment.astimezone(UTC).replace(microsecond=0) if moment.tzinfo else None
