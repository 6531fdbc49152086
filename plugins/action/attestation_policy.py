# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``attestation_policy``: plan and sign the next policy on the admin's machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import render_objects
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import (
    LastSeen,
    Observed,
    require_accepted,
    require_short,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import applied_sha256
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    render_document,
    render_identity,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import least, weaknesses
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import verify_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import (
    Patience,
    fetch_machines,
)
from ansible_collections.attested.kubernetes.plugins.plugin_utils.policy_signing import SigningAction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import PolicyPlan
    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedMachine
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import ClusterPolicy
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile
    from ansible_collections.attested.kubernetes.plugins.plugin_utils.policy_signing import Draft


class ActionModule(SigningAction):
    """Sign the site's next policy, with a generation after those of the control planes."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        ArgumentSpec(
            options={
                "profiles": {"type": "list", "elements": "str", "required": True},
                "exceptions": {"type": "list", "elements": "dict", "default": []},
                "records": {"type": "list", "elements": "dict", "default": []},
                "confirm_refusals": {"type": "bool", "default": False},
                "reinstate": {"type": "list", "elements": "str", "default": []},
                "port": {"type": "int", "default": 9091},
                "wait_seconds": {"type": "int", "default": 20},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan; without check mode sign, and record the policy in cluster.yml."""
        draft = self.draft(params)
        observed = _observed(params["records"], draft.public)
        plan = draft.planned(observed)
        if plan.unknown:
            fresh = self._fresh_evidence(params, plan, draft)
            plan = draft.planned(replace(observed, nodes=tuple(_with_evidence(one, fresh) for one in observed.nodes)))
        if plan.changed:
            require_short(draft.exceptions, now=draft.now)
        if not check_mode:
            require_accepted(plan, accepted=params["confirm_refusals"])
        document = draft.signed(plan.policy)
        if not check_mode:
            draft.remember(plan.policy)
        return _result(plan, document, observed, draft.applied)

    def _fresh_evidence(
        self, params: Mapping[str, Any], plan: PolicyPlan, draft: Draft
    ) -> dict[str, VerifiedMachine | AttestedError]:
        """Request fresh evidence from the nodes whose outcome is not known; the evidence is stored nowhere."""
        verifier = self.verifier(params)
        question = Question(
            cluster_id=verifier.cluster_id,
            policy=SitePolicy(profiles=draft.applied, identities=draft.identities),
            demands=verifier.demands,
            clock=verifier.clock,
            random=verifier.random,
        )
        names = [one.node_name for one in plan.unknown if one.node_name in self.task_vars["hostvars"]]
        endpoints = {name: self.endpoint(name, params["port"]) for name in names}
        return asyncio.run(fetch_machines(endpoints, question, patience=Patience(seconds=params["wait_seconds"])))


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
    """Return the API's policy if its signature is valid; any other policy is replaced."""
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
        role=Role(identity.get("role", Role.WORKER.value)),
        applied=str(identity.get("applied", "")),
        profile=str(identity["profile"]),
        registers={int(pcr): bytes.fromhex(value) for pcr, value in identity["registers"].items()},
    )


def _with_evidence(node: LastSeen, fresh: Mapping[str, VerifiedMachine | AttestedError]) -> LastSeen:
    """Return the node with its fresh evidence, or with the reason why there is none."""
    answer = fresh.get(node.node_name)
    if answer is None:
        return node
    if isinstance(answer, AttestedError):
        return replace(node, evidence_missing=f"requested evidence: {answer.code}: {answer.message}")
    return replace(node, registers=answer.quote.pcrs, facts=answer.facts)


def _result(
    plan: PolicyPlan, document: Mapping[str, Any], observed: Observed, profiles: Sequence[MeasurementProfile]
) -> Result:
    signed = render_document(dict(document))
    there = {one.ek_sha256: one.applied for one in observed.nodes}
    missing = [one for one in plan.identities if applied_sha256(render_identity(one)) != there.get(one.ek_sha256)]
    before = observed.policy
    shown = [render_document({"generation": one.generation, **one.content()}) for one in (before, plan.policy) if one]
    return Result(
        changed=plan.changed,
        values={
            "generation": plan.policy.generation,
            "policy": signed,
            "manifests": render_objects(profiles, missing) + signed,
            "returning": render_objects((), plan.returning),
            "failing": [str(one) for one in plan.failing],
            "unknown": [str(one) for one in plan.unknown],
            "postures": [f"profile {one.name}: posture {least(one.posture, one.reach).value}" for one in profiles],
        },
        warnings=tuple(weakness for one in profiles for weakness in weaknesses(one)),
        diff=Diff(before=shown[0] if before else "", after=shown[-1], header="policy in force"),
    )
