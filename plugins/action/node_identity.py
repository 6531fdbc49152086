# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``node_identity``: write identity files of the site, on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.assigned_disks import (
    disk_in,
    plan_disks,
    with_disk,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    read_nodes,
    render_identity_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, identity_name
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_files import write_site_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ActionModule(AttestedAction):
    """Write host_vars/<node>/identity.yml, whole for one node, or the disk ids of all nodes."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "node": {"type": "str"},
                "ek_sha256": {"type": "str"},
                "known_by": {"type": "str"},
                "admission": {"type": "str", "choices": ["Approved", "Refused", "Revoked"], "default": "Approved"},
                "replaced": {"type": "list", "elements": "str", "default": []},
                "ek_aliases": {"type": "dict", "default": {}},
                "records": {"type": "list", "elements": "dict"},
            },
            mutually_exclusive=(("node", "records"),),
            required_one_of=(("node", "records"),),
            required_together=(("node", "ek_sha256", "known_by"),),
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Write what the options describe; without change if the files say so already."""
        return self._disks(params, check_mode) if params["records"] is not None else self._identity(params, check_mode)

    def _identity(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Render, compare, write; the id of the disk, which the cluster assigns, stays."""
        path = Site.at(params["site"]).identity_file(params["node"])
        known = disk_in(read_bytes(path), place=str(path)) if path.exists() else ""
        wanted = render_identity_file(
            ek_sha256=params["ek_sha256"],
            known_by=params["known_by"],
            admission=Admission(params["admission"]),
            replaced=params["replaced"],
            aliases={_hex(ek): _hex(alias) for ek, alias in params["ek_aliases"].items()},
            disk=known,
        )
        return write_site_file(path, wanted, check_mode=check_mode, identity=identity_name(params["ek_sha256"]))

    def _disks(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan for all nodes, so that nothing is written if one is wrong; then write."""
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


def _hex(ek: Any) -> str:
    return str(ek).removeprefix("sha256:")
