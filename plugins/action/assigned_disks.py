# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``assigned_disks``: write which disk the cluster assigned to whom, on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.assigned_disks import plan_disks, with_disk
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import read_nodes
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_files import write_site_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ActionModule(AttestedAction):
    """Write the disk ids of a run's inventory beside its identities."""

    SPEC = site_spec().merged(ArgumentSpec(options={"records": {"type": "list", "elements": "dict", "required": True}}))

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan for all, so that nothing is written where one is wrong; then write."""
        site = Site.at(params["site"])
        nodes = read_nodes(self.task_vars["hostvars"], self.task_vars["groups"])
        disks = plan_disks(nodes, [one for record in params["records"] for one in record.get("identities", ())])
        files = [(site.identity_file(one.node), one) for one in disks]
        texts = [(path, with_disk(_text(path), one.disk, place=str(path))) for path, one in files]
        written = [write_site_file(path, text, check_mode=check_mode) for path, text in texts]
        warnings = tuple(one.exchanged for one in disks if one.exchanged)
        return _result(written, {one.node: one.disk.uuid for one in disks}, warnings)


def _text(path: Path) -> bytes:
    return read_bytes(path) if path.exists() else b""


def _result(written: Sequence[Result], disks: dict[str, str], warnings: tuple[str, ...]) -> Result:
    changed = [one for one in written if one.changed]
    shown = [one.diff for one in changed if one.diff]
    before, after = ("".join(str(getattr(diff, side)) for diff in shown) for side in ("before", "after"))
    return Result(
        changed=bool(changed),
        values={"disks": disks, "files": [one.values["path"] for one in changed]},
        diff=Diff(before=before, after=after, header="ids of disks"),
        warnings=warnings,
    )
