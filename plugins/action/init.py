# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``init``: judge a machine over its init service, send it the keys, show what it does with them.

An action and not a module, because a module cannot print while it runs, and because the secrets stay on this side.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..module_utils.adapter import ArgumentSpec, Result, failure_of, site_policy_spec, site_spec, site_verifier_spec
from ..module_utils.errors import KeyServiceError
from ..module_utils.init import InitOrder, make_admin_key
from ..module_utils.init.client import PORT, InitFailed, Wish, initiate
from ..module_utils.init.pursuit import Patience, Pursuit
from ..module_utils.keys.ca import JoinCa
from ..module_utils.reasons import Reason
from ..module_utils.site import Site, admin, secrets
from ..module_utils.site.admin import Access
from ..module_utils.site.given_access import accept_access
from ..module_utils.site.policy_files import site_policy
from ..module_utils.verification import Question
from ..plugin_utils.init_screen import InitScreen
from ..plugin_utils.site_action import SiteAction
from ..plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..module_utils.errors import AttestedError
    from ..module_utils.init.pursuit import Ended
    from ..module_utils.keys import KeyBundle


class ActionModule(SiteAction):
    """Make the cluster on the machine of this task, unless the site has access to it already."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        ArgumentSpec(
            options={
                "cluster_name": {"type": "str", "required": True},
                "extra_sans": {"type": "list", "elements": "str", "default": []},
                "kubernetes_version": {"type": "str", "required": True},
                "port": {"type": "int", "default": PORT},
                "server": {"type": "str", "required": True},
                "service_subnet": {"type": "str", "default": "10.96.0.0/16"},
                "tls_server_name": {"type": "str", "required": True},
                "wait_seconds": {"type": "int", "default": 120},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Read the site; ask the machine; keep what it gives."""
        self.require_founder()
        site, vault, question = Site.at(params["site"]), AnsibleVault(), self._question(params)
        bundle = secrets.load(site, vault)
        values = {"cluster_id": bundle.cluster_id.hex(), "path": str(site.admin_kubeconfig)}
        if admin.has_access(site, vault, cluster_name=params["cluster_name"], now=question.clock.now()):
            return Result(values=values)
        if check_mode:
            return Result(changed=True, values=values)
        request = admin.request_certificate(site, vault)
        wish = _wish(params, bundle, request=request, node=self.node_name, question=question)
        screen = InitScreen(self.node_name, say=self._display.display)
        ended = self._ask(params, wish, question, screen)
        _require_cluster(ended, bundle)
        given = accept_access(ended.success.kubeconfig, request=request, now=question.clock.now())
        access = Access(
            cluster_name=params["cluster_name"],
            server=params["server"],
            tls_server_name=params["tls_server_name"],
            cluster_ca=given.cluster_ca,
            certificate=given.certificate,
        )
        admin.write_kubeconfig(site, vault, access)
        return Result(changed=True, values={**values, **screen.judgement, **_times(ended)})

    def failure(self, error: AttestedError) -> dict[str, Any]:
        """Return the failure; where the machine itself failed, with its step and the last lines of that."""
        answer = failure_of(error)
        if not isinstance(error, InitFailed):
            return answer
        said = error.failure
        if said.code != error.code:
            answer["msg"] = f"{said.message} (the machine says {said.code[:100]})"
        return answer | {"stage": said.stage, "task": said.task, "log": said.log.splitlines()}

    def _question(self, params: Mapping[str, Any]) -> Question:
        verifier = self.verifier(params)
        return Question(
            cluster_id=verifier.cluster_id,
            policy=site_policy(self.profiles(params), self.nodes()),
            demands=verifier.demands,
            clock=verifier.clock,
            random=verifier.random,
        )

    def _ask(self, params: Mapping[str, Any], wish: Wish, question: Question, screen: InitScreen) -> Ended:
        endpoint = self.endpoint(self.node_name, params["port"])
        screen.asks(endpoint)
        pursuit = Pursuit(Patience(silent_seconds=params["wait_seconds"]), clock=question.clock, listener=screen)
        return asyncio.run(pursuit.follow(lambda: initiate(endpoint, wish, question, judged=screen.judged)))


def _wish(params: Mapping[str, Any], bundle: KeyBundle, *, request: bytes, node: str, question: Question) -> Wish:
    """Return what is asked of the machine, by an admin key that is made for this and lives in memory only."""
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


def _require_cluster(ended: Ended, bundle: KeyBundle) -> None:
    got = ended.success.cluster_id
    if got != bundle.cluster_id:
        raise KeyServiceError(
            f"expected the cluster {bundle.cluster_id.hex()}, the machine says that it made {got.hex()[:64]}",
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
