# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``init``: judge a machine over its init service, send it the keys, and print its progress.

It is an action, because a module cannot print while it runs, and because the secrets stay on the admin's machine.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import admin_access, secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import Access, accept_access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import site_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import Observed, require_short
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    failure_of,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KeyServiceError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import make_admin_key, pack_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import (
    PORT,
    InitFailed,
    Patience,
    Pursuit,
    Wish,
    initiate,
    waits_for_init,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import (
    MAX_POLICY_BYTES,
    InitOrder,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question
from ansible_collections.attested.kubernetes.plugins.plugin_utils.init_screen import InitScreen
from ansible_collections.attested.kubernetes.plugins.plugin_utils.policy_signing import SigningAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import Ended
    from ansible_collections.attested.kubernetes.plugins.plugin_utils.policy_signing import Draft

_NO_CLUSTER = Observed(policy=None, generations=(), revoked=frozenset(), nodes=())
_OVER_SSH = "ansible-playbook attested.kubernetes.init -e over_ssh=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The policy that is sent with an order; generation 0 and empty if none is sent."""

    generation: int = 0
    policy: bytes = b""
    objects: bytes = b""


class ActionModule(SigningAction):
    """Make the cluster on the machine of this task, unless the site has access to it already.

    If the machine waits for an init and no API server answers, the machine was reset. Its cluster is made again.
    """

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        ArgumentSpec(
            options={
                "cluster_name": {"type": "str", "required": True},
                "exceptions": {"type": "list", "elements": "dict", "default": []},
                "extra_sans": {"type": "list", "elements": "str", "default": []},
                "kubernetes_version": {"type": "str", "required": True},
                "port": {"type": "int", "default": PORT},
                "send_policy": {"type": "bool", "default": True},
                "server": {"type": "str", "required": True},
                "service_subnet": {"type": "str", "default": "10.96.0.0/16"},
                "tls_server_name": {"type": "str", "required": True},
                "wait_seconds": {"type": "int", "default": 120},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Send the machine an init request, follow it, and write the kubeconfig."""
        self.require_founder()
        site, vault, question = Site.at(params["site"]), AnsibleVault(), self._question(params)
        bundle = secrets.load(site, vault)
        values = {"cluster_id": bundle.cluster_id.hex(), "path": str(site.admin_kubeconfig)}
        if self._has_cluster(params, site, vault, question):
            return Result(values=values)
        draft = self._drafted(params) if params["send_policy"] else None
        if check_mode:
            return Result(changed=True, values=values)
        sent = _signed(draft) if draft else Sent()
        request = admin_access.request_certificate(site, vault)
        wish = _wish(params, bundle, request=request, node=self.node_name, question=question)
        wish = replace(wish, order=replace(wish.order, policy=sent.policy, policy_objects=sent.objects))
        screen = InitScreen(self.node_name, say=self._display.display)
        ended = self._follow(params, wish, question, screen)
        _require_cluster(ended, bundle)
        given = accept_access(ended.success.kubeconfig, request=request, now=question.clock.now())
        access = Access(
            cluster_name=params["cluster_name"],
            server=params["server"],
            tls_server_name=params["tls_server_name"],
            cluster_ca=given.cluster_ca,
            certificate=given.certificate,
        )
        admin_access.write_kubeconfig(site, vault, access)
        return Result(changed=True, values={**values, **screen.judgement, **_times(ended), **_in_force(ended, sent)})

    def failure(self, error: AttestedError) -> dict[str, Any]:
        """Return the failure; if the machine itself failed, with its step and the last log lines of the step."""
        answer = failure_of(error)
        if not isinstance(error, InitFailed):
            return answer
        failure = error.failure
        if failure.code != error.code:
            answer["msg"] = f"{failure.message} (the machine reports {failure.code[:100]})"
        return answer | {"stage": failure.stage, "task": failure.task, "log": failure.log.splitlines()}

    def _has_cluster(self, params: Mapping[str, Any], site: Site, vault: AnsibleVault, question: Question) -> bool:
        """Return whether the admin has access to the cluster and its machine does not wait for an init."""
        clock = question.clock
        if not admin_access.has_access(site, vault, cluster_name=params["cluster_name"], now=clock.now()):
            return False
        machine = self.endpoint(self.node_name, params["port"])
        return not waits_for_init(machine, params["server"], clock=clock, wait_seconds=params["wait_seconds"])

    def _drafted(self, params: Mapping[str, Any]) -> Draft:
        draft = self.draft(params)
        require_short(draft.exceptions, now=draft.now)
        return draft

    def _question(self, params: Mapping[str, Any]) -> Question:
        verifier = self.verifier(params)
        return Question(
            cluster_id=verifier.cluster_id,
            policy=site_policy(self.profiles(params), self.nodes()),
            demands=verifier.demands,
            clock=verifier.clock,
            random=verifier.random,
        )

    def _follow(self, params: Mapping[str, Any], wish: Wish, question: Question, screen: InitScreen) -> Ended:
        endpoint = self.endpoint(self.node_name, params["port"])
        screen.requests(endpoint)
        pursuit = Pursuit(Patience(silent_seconds=params["wait_seconds"]), clock=question.clock, listener=screen)
        return asyncio.run(pursuit.follow(lambda: initiate(endpoint, wish, question, judged=screen.judged)))


def _wish(params: Mapping[str, Any], bundle: KeyBundle, *, request: bytes, node: str, question: Question) -> Wish:
    """Return the input of the init, with an admin key that is made for it and exists only in memory."""
    order = InitOrder(
        cluster_name=params["cluster_name"],
        kubernetes_version=params["kubernetes_version"],
        service_cidr=params["service_subnet"],
        measurement_salt=bundle.measurement_salt,
        challenge_id=b"",
        sealed=b"",
        extra_sans=tuple(params["extra_sans"]),
        admin_request=request,
    )
    ca = JoinCa(certificate=bundle.join_ca_certificate, private_key=bundle.join_ca_key.reveal())
    key = make_admin_key(ca=ca, cluster_id=bundle.cluster_id, now=question.clock.now())
    return Wish(order=order, bundle=bundle, admin=key, node=node)


def _signed(draft: Draft) -> Sent:
    """Return the signed first policy of a site, and record it in cluster.yml.

    Another attempt of the same site signs the same generation with the same bytes. Raises MESSAGE_TOO_LARGE.
    """
    plan = draft.planned(_NO_CLUSTER)
    policy, objects = pack_policy(draft.signed(plan.policy), profiles=draft.applied, identities=plan.identities)
    if len(policy) + len(objects) > MAX_POLICY_BYTES:
        raise Refusal(
            f"expected at most {MAX_POLICY_BYTES} bytes of policy, profiles and identities in a request, "
            f"the site has {len(policy) + len(objects)}",
            reason=Reason.MESSAGE_TOO_LARGE,
            hint=f"Apply them over ssh: {_OVER_SSH}",
        )
    draft.remember(plan.policy)
    return Sent(generation=plan.policy.generation, policy=policy, objects=objects)


def _in_force(ended: Ended, sent: Sent) -> dict[str, Any]:
    """Return the policy generation in force, and whether it is not the sent one; an older machine ignores the field."""
    taken = ended.success.policy_generation
    return {"policy_generation": taken, "policy_missing": taken != sent.generation}


def _require_cluster(ended: Ended, bundle: KeyBundle) -> None:
    got = ended.success.cluster_id
    if got != bundle.cluster_id:
        raise KeyServiceError(
            f"expected the cluster {bundle.cluster_id.hex()}, the machine reports that it made {got.hex()[:64]}",
            reason=Reason.CLUSTER_ID_MISMATCH,
        )


def _times(ended: Ended) -> dict[str, Any]:
    """Return the seconds of each stage, as the callback ``stages`` prints them, and of each task."""
    stages: dict[str, float] = {}
    for one in ended.tasks:
        stages[one.stage] = stages.get(one.stage, 0.0) + one.seconds
    return {
        "steps": [{"name": name, "seconds": round(seconds, 3), "changed": True} for name, seconds in stages.items()],
        "tasks": [{"stage": one.stage, "task": one.task, "seconds": round(one.seconds, 3)} for one in ended.tasks],
    }
