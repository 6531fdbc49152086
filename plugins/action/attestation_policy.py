# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``attestation_policy``: plan and sign the next policy on the admin's machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..module_utils.adapter import ArgumentSpec, Diff, Result, site_policy_spec, site_spec, site_verifier_spec
from ..module_utils.errors import AttestedError, PolicyError
from ..module_utils.policy import Admission, SitePolicy, render_document, sign_policy, verify_policy
from ..module_utils.site import Site, cluster_file
from ..module_utils.site.cluster_file import PolicyMark
from ..module_utils.site.identities import enrolled_identities
from ..module_utils.site.policy_files import load_profiles, render_objects
from ..module_utils.site.policy_outlook import LastSeen
from ..module_utils.site.policy_plan import (
    Observed,
    plan_next,
    read_exceptions,
    require_accepted,
    require_short,
)
from ..module_utils.system import SystemClock, read_bytes, write_atomic
from ..module_utils.verification import Question
from ..module_utils.verification.fleet import Patience, hear_machines
from ..plugin_utils.site_action import SiteAction
from ..plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..module_utils.attestation import VerifiedMachine
    from ..module_utils.policy import ClusterPolicy, MeasurementProfile, NodeIdentity, PolicyException
    from ..module_utils.site import ClusterFile
    from ..module_utils.site.policy_plan import PolicyPlan


class ActionModule(SiteAction):
    """Sign what the site means; the key is opened here, in memory, and nowhere else."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        ArgumentSpec(
            options={
                "profiles": {"type": "list", "elements": "str", "required": True},
                "exceptions": {"type": "list", "elements": "dict", "default": []},
                "records": {"type": "list", "elements": "dict", "default": []},
                "confirm_refusals": {"type": "bool", "default": False},
                "port": {"type": "int", "default": 9091},
                "wait_seconds": {"type": "int", "default": 20},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan; without check mode sign, and write down in cluster.yml what was signed."""
        site = Site.at(params["site"])
        public = cluster_file.parse(read_bytes(site.cluster_file))
        profiles, exceptions, excepted = self._wanted(params, site)
        observed = _observed(params["records"], public)
        now = SystemClock().now()

        def planned(observed: Observed) -> PolicyPlan:
            return plan_next(
                profiles=profiles,
                identities=self._identities(),
                exceptions=exceptions,
                excepted=excepted,
                mark=public.policy,
                observed=observed,
                now=now,
            )

        plan = planned(observed)
        if plan.unknown:
            heard = self._heard(params, plan, (*profiles, *excepted))
            plan = planned(replace(observed, nodes=tuple(_as_heard(one, heard) for one in observed.nodes)))
        if plan.changed:
            require_short(exceptions, now=now)
        if not check_mode:
            require_accepted(plan, accepted=params["confirm_refusals"])
        document = sign_policy(
            plan.policy, private_key=AnsibleVault().decrypt(read_bytes(site.policy_key)), cluster_id=public.cluster_id
        )
        if not check_mode:
            _remember(site, public, plan.policy)
        return _result(plan, document, observed, (*profiles, *excepted))

    def _heard(
        self, params: Mapping[str, Any], plan: PolicyPlan, profiles: Sequence[MeasurementProfile]
    ) -> dict[str, VerifiedMachine | AttestedError]:
        """Ask the nodes of which something is not known for fresh evidence; nothing of it is written anywhere."""
        verifier = self.verifier(params)
        question = Question(
            cluster_id=verifier.cluster_id,
            policy=SitePolicy(profiles=profiles, identities=self._identities()),
            demands=verifier.demands,
            clock=verifier.clock,
            random=verifier.random,
        )
        names = [one.node_name for one in plan.unknown if one.node_name in self.task_vars["hostvars"]]
        endpoints = {name: self.endpoint(name, params["port"]) for name in names}
        return asyncio.run(hear_machines(endpoints, question, patience=Patience(seconds=params["wait_seconds"])))

    def _wanted(
        self, params: Mapping[str, Any], site: Site
    ) -> tuple[tuple[MeasurementProfile, ...], tuple[PolicyException, ...], tuple[MeasurementProfile, ...]]:
        directory = site.policy_directory(params["policy_directory"])
        active = load_profiles(directory, params["profiles"])
        names = sorted({str(one.get("profile", "")) for one in params["exceptions"]} - {one.name for one in active})
        others = load_profiles(directory, names) if names else ()
        every = {one.name: one for one in (*active, *others)}
        keys = {one.node_name: one.keys for one in self._identities()}
        return active, read_exceptions(params["exceptions"], profiles=every, keys=keys), others

    def _identities(self) -> tuple[NodeIdentity, ...]:
        return enrolled_identities(self.nodes())


def _observed(records: Sequence[Mapping[str, Any]], public: ClusterFile) -> Observed:
    nodes = {one["ek_sha256"]: _last_seen(one) for record in records for one in record.get("identities", ())}
    policies = [one for one in (_verified(record.get("policy"), public) for record in records) if one is not None]
    return Observed(
        policy=max(policies, key=lambda one: one.generation, default=None),
        generations=tuple(int(record.get("generation", 0)) for record in records),
        revoked=frozenset(str(ek) for record in records for ek in record.get("revoked", ())),
        nodes=tuple(nodes.values()),
    )


def _verified(document: Any, public: ClusterFile) -> ClusterPolicy | None:
    """Return the API's policy where it is ours; whatever else is there is replaced."""
    if not isinstance(document, dict) or not document:
        return None
    try:
        return verify_policy(document, public_key=public.policy_key, cluster_id=public.cluster_id)
    except PolicyError:
        return None


def _last_seen(identity: Mapping[str, Any]) -> LastSeen:
    return LastSeen(
        node_name=str(identity["node"]),
        ek_sha256=str(identity["ek_sha256"]),
        ek_alias=str(identity.get("ek_alias", "")),
        revoked=identity["admission"] == Admission.REVOKED.value,
        phase=str(identity["phase"]),
        profile=str(identity["profile"]),
        registers={int(pcr): bytes.fromhex(value) for pcr, value in identity["registers"].items()},
    )


def _as_heard(node: LastSeen, heard: Mapping[str, VerifiedMachine | AttestedError]) -> LastSeen:
    """Return the node as fresh evidence shows it, or with the reason why there is none."""
    answer = heard.get(node.node_name)
    if answer is None:
        return node
    if isinstance(answer, AttestedError):
        return replace(node, unheard=f"asked for evidence: {answer.code}: {answer.message}")
    return replace(node, registers=answer.quote.pcrs, facts=answer.facts)


def _remember(site: Site, public: ClusterFile, policy: ClusterPolicy) -> None:
    mark = PolicyMark(generation=policy.generation, content_sha256=policy.content_sha256, revoked=tuple(policy.revoked))
    write_atomic(site.cluster_file, cluster_file.render(replace(public, policy=mark)), mode=0o644)


def _result(
    plan: PolicyPlan, document: Mapping[str, Any], observed: Observed, profiles: Sequence[MeasurementProfile]
) -> Result:
    signed = render_document(dict(document))
    before = observed.policy
    shown = [render_document({"generation": one.generation, **one.content()}) for one in (before, plan.policy) if one]
    return Result(
        changed=plan.changed,
        values={
            "generation": plan.policy.generation,
            "policy": signed,
            "manifests": render_objects(profiles, plan.identities) + signed,
            "failing": [str(one) for one in plan.failing],
            "unknown": [str(one) for one in plan.unknown],
        },
        diff=Diff(before=shown[0] if before else "", after=shown[-1], header="policy in force"),
    )
