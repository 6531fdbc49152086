# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``fleet_verification``: verify all nodes at once, and print and write the findings."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import site_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom, release
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import weaknesses
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import (
    Outcome,
    Question,
    found_in_result,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.report import (
    FleetReport,
    render_html,
    render_json,
    render_table,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import (
    Patience,
    examine_fleet,
)
from ansible_collections.attested.kubernetes.plugins.plugin_utils.report_files import report_paths, write_report
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Verifier
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Finding

_PROGRESS_SECONDS = 2.0


class ActionModule(SiteAction):
    """Verify a fleet; a refused or silent node is a finding, not a failure of the task."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        ArgumentSpec(
            options={
                "nodes": {"type": "list", "elements": "str", "required": True},
                "parallel": {"type": "int", "default": 16},
                "port": {"type": "int", "default": 9091},
                "report": {"type": "path"},
                "results": {"type": "dict"},
                "wait_seconds": {"type": "int", "default": 20},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Verify the nodes, or use the given results, and report."""
        paths = report_paths(params["report"])
        verifier = self.verifier(params)
        findings = self._findings(params, verifier)
        report = FleetReport(
            cluster_id=verifier.cluster_id.hex(),
            release=release(),
            made_at=verifier.clock.now(),
            findings=findings,
            lock_register=verifier.demands.lock_register,
        )
        if not check_mode:
            write_report(paths, html=lambda: render_html(report), json=lambda: render_json(report))
        return Result(
            changed=bool(paths),
            values={
                "findings": {one.node: one.to_document() for one in findings},
                "table": render_table(report),
                "not_verified": [one.node for one in report.ordered() if one.outcome is not Outcome.VERIFIED],
                "reports": [str(path) for path in paths],
            },
            warnings=tuple(weakness for one in self.profiles(params) for weakness in weaknesses(one)),
        )

    def _findings(self, params: Mapping[str, Any], verifier: Verifier) -> tuple[Finding, ...]:
        if params["results"] is not None:
            results: Mapping[str, Any] = params["results"]
            return tuple(found_in_result(name, results.get(name) or {}, over="ssh") for name in params["nodes"])
        question = Question(
            cluster_id=verifier.cluster_id,
            policy=site_policy(self.profiles(params), self.nodes()),
            demands=verifier.demands,
            clock=SystemClock(),
            random=SystemRandom(),
        )
        return asyncio.run(
            examine_fleet(
                {name: self.endpoint(name, params["port"]) for name in params["nodes"]},
                question,
                patience=Patience(parallel=params["parallel"], seconds=params["wait_seconds"]),
                report=self._progress(len(params["nodes"])),
            )
        )

    def _progress(self, total: int) -> Callable[[Finding], None]:
        """Return a callback that prints the progress every few seconds; a small fleet is done before that."""
        state = {"answered": 0, "bad": 0, "shown": time.monotonic()}

        def report(finding: Finding) -> None:
            state["answered"] += 1
            state["bad"] += finding.outcome is not Outcome.VERIFIED
            if time.monotonic() - state["shown"] >= _PROGRESS_SECONDS and state["answered"] < total:
                state["shown"] = time.monotonic()
                self._display.display(f"  {state['asked']} of {total} nodes answered, {state['bad']} not verified")

        return report
