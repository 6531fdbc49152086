# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``node_recovery``: open the disks of locked nodes, from the site's secrets or a recovery kit.

It is an action, because the secrets stay on the admin's machine, and because it prints each outcome at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import make_roster, site_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    failure_of,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import make_admin_key
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import (
    PORT,
    ClusterKeys,
    LockedNode,
    Outcome,
    Patience,
    Rescuer,
    State,
    needs_a_person,
    recover_cluster,
    table,
)
from ansible_collections.attested.kubernetes.plugins.plugin_utils.kit_keys import kit_keys_spec, opened_kit
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import host_lines, spent
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Verifier
    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import Candidate, Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The input from the admin: the cluster's keys, its join CA, and the site's files in a kit."""

    keys: ClusterKeys
    ca: JoinCa = field(repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict)


class RecoveryIncomplete(AttestedError):
    """Some node stays locked; ``values`` have the outcome of each."""

    def __init__(self, left: Sequence[Outcome], total: int, values: Mapping[str, Any]) -> None:
        """Name the nodes that stay locked, with their reasons."""
        report = "; ".join(f"{one.node}: {one.reason.name if one.reason else ''}: {one.message}" for one in left)
        super().__init__(f"expected all {total} nodes to open, {report}", reason=Reason.RECOVERY_INCOMPLETE)
        self.values = values


class ActionModule(SiteAction):
    """Recover the named nodes; a node that was opened by another contender first is no failure."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        kit_keys_spec(),
        ArgumentSpec(
            options={
                "nodes": {"type": "list", "elements": "str", "required": True},
                "kit": {"type": "path"},
                "parallel": {"type": "int", "default": 16},
                "port": {"type": "int", "default": PORT},
                "wait_seconds": {"type": "int", "default": 60},
            },
            required_by=dict.fromkeys(kit_keys_spec().options, ("kit",)),
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Read the keys, choose the nodes, recover them; in check mode no key is sent."""
        verifier = self.verifier(params)
        holdings = _holdings(params, verifier)
        roster = make_roster(params["nodes"], self.nodes(), holdings.files)
        for name, why in roster.left_out.items():
            self._print(name, f"left out: {why}")
        outcomes = self._outcomes(params, roster, self._rescuer(params, verifier, holdings), send=not check_mode)
        for row in table(outcomes):
            self._display.display(f"  {row}")
        values = {
            "nodes": {one.node: _shown(one) for one in outcomes},
            "table": list(table(outcomes)),
            "left_out": dict(roster.left_out),
        }
        if needs_a_person(outcomes):
            raise RecoveryIncomplete([one for one in outcomes if needs_a_person([one])], len(outcomes), values)
        return Result(changed=any(one.state in (State.RECOVERED, State.READY) for one in outcomes), values=values)

    def failure(self, error: AttestedError) -> dict[str, Any]:
        """Return the failure, with the outcome of each node."""
        return failure_of(error) | (dict(error.values) if isinstance(error, RecoveryIncomplete) else {})

    def _outcomes(
        self, params: Mapping[str, Any], roster: Roster, rescuer: Rescuer, *, send: bool
    ) -> tuple[Outcome, ...]:
        """Return the outcome of each node in the roster's order, and print each as soon as it is known."""
        locked, unknown = [], []
        for one in roster.candidates:
            endpoint = self.endpoint(one.name, params["port"])
            if one.disk is None:
                unknown.append(_without_disk(one, endpoint))
            else:
                locked.append(LockedNode(name=one.name, endpoint=endpoint, role=one.role.value, disk=one.disk))
        for outcome in unknown:
            self._report(outcome)
        patience = Patience(parallel=params["parallel"], seconds=params["wait_seconds"])
        found = asyncio.run(recover_cluster(locked, rescuer, patience=patience, report=self._report, send=send))
        places = {one.name: place for place, one in enumerate(roster.candidates)}
        return tuple(sorted((*found, *unknown), key=lambda one: places[one.node]))

    def _rescuer(self, params: Mapping[str, Any], verifier: Verifier, holdings: Holdings) -> Rescuer:
        """Return the rescuer, with an admin key that is made for it and exists only in memory."""
        question = Question(
            cluster_id=verifier.cluster_id,
            policy=site_policy(self.profiles(params), self.nodes()),
            demands=verifier.demands,
            clock=verifier.clock,
            random=verifier.random,
        )
        admin = make_admin_key(ca=holdings.ca, cluster_id=verifier.cluster_id, now=verifier.clock.now())
        return Rescuer(admin=admin, keys=holdings.keys, question=question)

    def _report(self, one: Outcome) -> None:
        why = f": {one.reason.name}: {one.message}" if one.reason and needs_a_person([one]) else ""
        self._print(one.node, f"{one.state.value} after {spent(one.seconds)}{why}")

    def _print(self, node: str, text: str) -> None:
        for row in host_lines(node, text):
            self._display.display(row)


def _holdings(params: Mapping[str, Any], verifier: Verifier) -> Holdings:
    """Return the keys and files of the kit, or else the keys of the site; raises KIT_OTHER_CLUSTER."""
    if not params["kit"]:
        bundle = secrets.load(Site.at(params["site"]), AnsibleVault())
        ca = JoinCa(certificate=bundle.join_ca_certificate, private_key=bundle.join_ca_key.reveal())
        return Holdings(keys=ClusterKeys.of_bundle(bundle), ca=ca)
    kit = opened_kit(params["kit"], params)
    if kit.cluster_id != verifier.cluster_id:
        raise SiteError(
            f"expected the recovery kit of cluster {verifier.cluster_id.hex()}, got that of {kit.cluster_id.hex()}",
            reason=Reason.KIT_OTHER_CLUSTER,
        )
    ca = JoinCa(certificate=kit.join_ca, private_key=kit.join_ca_key.reveal())
    return Holdings(keys=ClusterKeys.of_kit(kit), ca=ca, files=dict(kit.files))


def _without_disk(one: Candidate, endpoint: str) -> Outcome:
    reason = Reason.RECOVERY_DISK_UNKNOWN
    return Outcome(
        node=one.name,
        endpoint=endpoint,
        role=one.role.value,
        seconds=0.0,
        reason=reason,
        message=f"expected attested_disk_id of {one.name}, got none",
        hint=reason.value.hint,
    )


def _shown(one: Outcome) -> dict[str, Any]:
    return {
        "state": one.state.value,
        "role": one.role,
        "endpoint": one.endpoint,
        "seconds": round(one.seconds, 2),
        "reason": one.reason.name if one.reason else "",
        "message": one.message,
        "hint": one.hint,
    }
