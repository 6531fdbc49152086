# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``addon``: one row of addons.yml becomes a Helm release, its custom objects are saved before."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.addons import (
    FILE,
    copy_name,
    document_of,
    parse_addons,
    read_chart,
    surplus_copies,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import require_recipients
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import make_directory, read_bytes, remove
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    site_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.addons import Addon

_NODE_MODULE = "attested.kubernetes.addon_release"


class ActionModule(SiteAction):
    """Make one release what the site says."""

    SPEC = site_spec().merged(
        kubectl_spec(),
        ArgumentSpec(
            options={
                "name": {"type": "str"},
                "namespace": {"type": "str"},
                "directory": {"type": "path"},
                "keep": {"type": "int", "default": 7},
                "recipients": {"type": "list", "elements": "str", "default": []},
            },
            required_by={"name": ("directory",)},
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan the change of one release; without check mode save its custom objects, then make the change.

        Without a name, list the releases.
        """
        if params["keep"] < 1:
            raise SiteError(f"expected keep as 1 or more, got {params['keep']}", reason=Reason.OPTION_INVALID)
        site = Site.at(params["site"])
        addons = self._addons(site)
        if params["name"] is None:
            return Result(values={"addons": [{"name": one.name, "namespace": one.namespace} for one in addons]})
        addon = _only(addons, params)
        with self.folder_there() as folder:
            options = self._options(site, addon, folder, params)
            digest = options["chart_digest"].removeprefix("sha256:")
            values = {"chart_digest": f"sha256:{digest}", "path": "", "removed": []}
            plan = self._there({**options, "state": "planned"})
            if check_mode or not plan["changed"]:
                return _result(plan, values)
            if plan["objects"]:
                values |= self._save(addon, {**options, "path": f"{folder}/objects.age"}, params)
            return _result(self._there({**options, "state": "present"}), values, diff=plan.get("diff"))

    def _addons(self, site: Site) -> tuple[Addon, ...]:
        """Return the list of the site, whose values may be templates and in a vault; raises ADDON_INVALID."""
        path = site.root / FILE
        if not path.exists():
            return ()
        document_of(read_bytes(path))
        try:
            document = self._templar.template(
                self._loader.load_from_file(str(path), cache="none", trusted_as_template=True)
            )
        except AnsibleError as error:
            problem = type(error).__name__
        else:
            return parse_addons(document)
        raise SiteError(  # outside of the handler: a cause may quote a value
            f"expected {path} as YAML whose templates and vaults open, got {problem}", reason=Reason.ADDON_INVALID
        )

    def _options(self, site: Site, addon: Addon, folder: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the chart, and return the options of the module on the node."""
        chart, digest = f"{addon.chart}@{addon.digest}", addon.digest
        if not addon.is_remote:
            packed = read_chart(site.root, addon)
            chart, digest = f"{folder}/chart{packed.suffix}", packed.digest
            self._transfer_data(chart, packed.data)
        return {
            "name": addon.name,
            "namespace": addon.namespace,
            "chart": chart,
            "chart_digest": digest,
            "values": base64.b64encode(json.dumps(addon.values).encode()).decode("ascii"),
            "timeout_seconds": addon.timeout_seconds,
            "adopt": addon.adopt,
            "kubeconfig": params["kubeconfig"],
        }

    def _save(self, addon: Addon, options: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
        """Fetch an encrypted copy of the custom objects, and remove the oldest ones; raises KIT_KEY_UNUSABLE."""
        require_recipients(params["recipients"])
        said = self._there({**options, "state": "saved", "recipients": params["recipients"]})
        directory = Path(params["directory"]).resolve()
        make_directory(directory)
        target = directory / copy_name(addon, f"{SystemClock().now():%Y%m%dT%H%M%SZ}")
        self.fetch(options["path"], target, str(said["file_sha256"]))
        gone = surplus_copies(addon, (path.name for path in directory.iterdir()), keep=params["keep"])
        for name in gone:
            remove(directory / name)
        return {"path": str(target), "removed": list(gone)}

    def _there(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return run_module_there(self.execute, _NODE_MODULE, options)


def _only(addons: tuple[Addon, ...], params: Mapping[str, Any]) -> Addon:
    name, namespace = params["name"], params["namespace"]
    found = [one for one in addons if one.name == name and namespace in (None, one.namespace)]
    if len(found) != 1:
        raise SiteError(f"expected one add-on {name} in {FILE}, got {len(found)}", reason=Reason.ADDON_INVALID)
    return found[0]


def _result(said: Mapping[str, Any], values: Mapping[str, Any], *, diff: Any = None) -> Result:
    shown = diff or said.get("diff")
    return Result(
        changed=bool(said["changed"]),
        values={**values, **{name: said[name] for name in ("definitions", "objects", "put_back")}},
        diff=Diff(before=shown["before"], after=shown["after"]) if shown else None,
        warnings=tuple(said.get("warnings", ())),
    )
