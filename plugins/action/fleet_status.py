# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``fleet_status``: make a table, a list of what needs a person, and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, release
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.services.fleet_status import (
    read_fleet,
    render_calls,
    render_html,
    render_json,
    render_policy,
    render_table,
)
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.report_files import report_paths, write_report

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(AttestedAction):
    """Combine the results of `node_status_info` and `cluster_info`, without a call to a node."""

    SPEC: ClassVar[ArgumentSpec] = ArgumentSpec(
        options={
            "cluster": {"type": "dict", "required": True},
            "cluster_name": {"type": "str", "default": ""},
            "control_planes": {"type": "list", "elements": "str", "required": True},
            "next_boots": {"type": "dict", "default": {}},
            "nodes": {"type": "dict", "required": True},
            "report": {"type": "path"},
        }
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Make the status, and write the report if its path is given."""
        paths = report_paths(params["report"])
        fleet = read_fleet(
            params["nodes"],
            params["cluster"],
            control_planes=params["control_planes"],
            cluster_name=params["cluster_name"],
            release=release(),
            made_at=SystemClock().now(),
            next_boots=params["next_boots"],
        )
        if not check_mode:
            write_report(paths, html=lambda: render_html(fleet), json=lambda: render_json(fleet))
        return Result(
            changed=bool(paths),
            values={
                "table": render_table(fleet),
                "policy": render_policy(fleet),
                "needed": render_calls(fleet),
                "reports": [str(path) for path in paths],
            },
        )
