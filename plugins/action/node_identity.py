# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``node_identity``: write identity files of the site, on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import read_list
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    disk_in,
    plan_disks,
    read_nodes,
    render_identity_file,
    require_only_identity,
    with_disk,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.listed_machines import plan_list
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, identity_name
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_files import write_site_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import InventoryNode


class ActionModule(AttestedAction):
    """Write host_vars/<node>/identity.yml: of one node, of the machines in a list, or the disk ids of all nodes."""

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
                "machines": {"type": "path"},
                "nodes": {"type": "list", "elements": "str"},
            },
            mutually_exclusive=(("node", "records", "machines"),),
            required_one_of=(("node", "records", "machines"),),
            required_together=(("node", "ek_sha256", "known_by"), ("machines", "nodes")),
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Write what the options describe; changes nothing if the files have it already."""
        if params["machines"] is not None:
            return self._listed(params, check_mode)
        return self._disks(params, check_mode) if params["records"] is not None else self._identity(params, check_mode)

    def _identity(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Render, compare, write; the disk id, which the cluster assigns, stays."""
        path = Site.at(params["site"]).identity_file(params["node"])
        before = _text(path)
        require_only_identity(before, place=str(path))
        wanted = render_identity_file(
            ek_sha256=params["ek_sha256"],
            known_by=params["known_by"],
            admission=Admission(params["admission"]),
            replaced=params["replaced"],
            aliases={_hex(ek): _hex(alias) for ek, alias in params["ek_aliases"].items()},
            disk=disk_in(before, place=str(path)),
        )
        return write_site_file(path, wanted, check_mode=check_mode, identity=identity_name(params["ek_sha256"]))

    def _listed(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan for all machines of the list, so that nothing is written if one is wrong; then write."""
        site = Site.at(params["site"])
        hosts = self.task_vars["hostvars"]
        nodes = read_nodes(hosts, self.task_vars["groups"])
        serials = {one.name: str(hosts[one.name].get("attested_serial") or "") for one in nodes}
        plan = plan_list(read_list(params["machines"]), nodes, serials=serials, chosen=frozenset(params["nodes"]))
        files = [(site.identity_file(one.name), _rendered(one)) for one in plan.enrolled]
        for path, _wanted in files:
            require_only_identity(_text(path), place=str(path))
        written = [write_site_file(path, text, check_mode=check_mode) for path, text in files]
        values = {"enrolled": [one.name for one in plan.enrolled], "known": list(plan.known)}
        return _result(written, values | {"absent": list(plan.absent), "spare": list(plan.spare)}, (), "identities")

    def _disks(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan for all nodes, so that nothing is written if one is wrong; then write."""
        site = Site.at(params["site"])
        nodes = read_nodes(self.task_vars["hostvars"], self.task_vars["groups"])
        disks = plan_disks(nodes, [one for record in params["records"] for one in record.get("identities", ())])
        files = [(site.identity_file(one.node), one) for one in disks]
        texts = [(path, with_disk(_text(path), one.disk, place=str(path))) for path, one in files]
        written = [write_site_file(path, text, check_mode=check_mode) for path, text in texts]
        warnings = tuple(one.exchanged for one in disks if one.exchanged)
        return _result(written, {"disks": {one.node: one.disk.uuid for one in disks}}, warnings, "ids of disks")


def _text(path: Path) -> bytes:
    return read_bytes(path) if path.exists() else b""


def _rendered(node: InventoryNode) -> bytes:
    return render_identity_file(
        ek_sha256=str(node.ek_sha256),
        known_by=node.known_by,
        admission=node.admission,
        replaced=node.replaced,
        aliases=node.aliases,
        disk=node.disk,
    )


def _result(written: Sequence[Result], values: Mapping[str, Any], warnings: tuple[str, ...], header: str) -> Result:
    changed = [one for one in written if one.changed]
    shown = [one.diff for one in changed if one.diff]
    before, after = ("".join(str(getattr(diff, side)) for diff in shown) for side in ("before", "after"))
    return Result(
        changed=bool(changed),
        values={**values, "files": [one.values["path"] for one in changed]},
        diff=Diff(before=before, after=after, header=header),
        warnings=warnings,
    )


def _hex(ek: Any) -> str:
    return str(ek).removeprefix("sha256:")
