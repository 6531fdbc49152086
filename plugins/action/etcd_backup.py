# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``etcd_backup``: fetch a backup that a control plane encrypted, and keep the newest ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import parse_manifest, surplus
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site, read_cluster_file
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import make_directory, remove
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    site_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_MODULE = "attested.kubernetes.etcd_snapshot"


class ActionModule(SiteAction):
    """Keep the newest backups of a cluster in a directory of the admin's machine."""

    SPEC = site_spec().merged(
        node_config_spec(),
        ArgumentSpec(
            options={
                "directory": {"type": "path", "required": True},
                "keep": {"type": "int", "default": 7},
                "recipients": {"type": "list", "elements": "str", "required": True},
            },
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Let the control plane of this task write a backup, fetch it, and remove the oldest ones."""
        if params["keep"] < 1:
            raise SiteError(f"expected keep as 1 or more, got {params['keep']}", reason=Reason.OPTION_INVALID)
        directory = Path(params["directory"]).resolve()
        before = _names(directory)
        if check_mode:
            self._snapshot(params, "/var/tmp/attested-backup/etcd.age")  # noqa: S108  # nothing is written there
            gone = surplus([*before, "etcd-99999999T999999Z.age"], keep=params["keep"])
            return _result(directory, "etcd-TIME.age", before, gone)
        with self.folder_there() as folder:
            answer = self._snapshot(params, f"{folder}/etcd.age")
            manifest = parse_manifest(json.dumps(answer["manifest"]).encode())
            manifest.require_cluster(read_cluster_file(Site.at(params["site"]).cluster_file).cluster_id)
            make_directory(directory)
            self.fetch(f"{folder}/etcd.age", directory / manifest.file_name, str(answer["file_sha256"]))
        gone = surplus(_names(directory), keep=params["keep"])
        for name in gone:
            remove(directory / name)
        return _result(directory, manifest.file_name, before, gone, manifest=manifest.values())

    def _snapshot(self, params: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        options = {"recipients": params["recipients"], "node_config": params["node_config"]}
        return run_module_there(self.execute, _NODE_MODULE, {"path": path, **options})


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("etcd-*.age"))


def _result(directory: Path, name: str, before: list[str], gone: tuple[str, ...], **values: Any) -> Result:
    after = [one for one in (*before, name) if one not in gone]
    return Result(
        changed=True,
        values={"path": str(directory / name), "removed": list(gone), "manifest": {}, **values},
        diff=Diff(before=_lines(before), after=_lines(after), header=str(directory)),
    )


def _lines(names: list[str]) -> str:
    return "".join(f"{name}\n" for name in names)
