# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``addon``: save the custom objects of one row of addons.yml, then change its Helm release."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.addons import (
    FILE,
    NETWORK_PLUGINS,
    copy_name,
    document_of,
    network_plugin,
    parse_addons,
    read_chart,
    registry_config,
    surplus_copies,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import require_recipients
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import open_bundle
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
_CHARTS = Path(__file__).parents[2] / "roles" / "bundle_builder" / "files" / "charts"


class ActionModule(SiteAction):
    """Change one release to what the site says."""

    SPEC = site_spec().merged(
        kubectl_spec(),
        ArgumentSpec(
            options={
                "name": {"type": "str"},
                "namespace": {"type": "str"},
                "directory": {"type": "path"},
                "keep": {"type": "int", "default": 7},
                "recipients": {"type": "list", "elements": "str", "default": []},
                "registry_credentials": {"type": "list", "elements": "dict", "default": []},
                "network_plugin": {"type": "str", "choices": ["none", *NETWORK_PLUGINS], "default": "none"},
                "bundle": {"type": "path"},
                "image": {"type": "str"},
                "pod_subnet": {"type": "str", "default": "10.244.0.0/16"},
            },
            required_if=tuple(("network_plugin", name, ("bundle", "image"), True) for name in NETWORK_PLUGINS),
            required_by={"name": ("directory",)},
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan the change of one release; without check mode save its custom objects, then make the change.

        Without a name, list the releases.
        """
        if params["keep"] < 1:
            raise SiteError(f"expected keep as 1 or more, got {params['keep']}", reason=Reason.OPTION_INVALID)
        network = _network_plugin(params)
        is_network = (params["name"], params["namespace"]) in [(one.name, one.namespace) for one in network]
        addons = network if is_network else self._addons(Site.at(params["site"]), network)
        if params["name"] is None:
            rows = [{"name": one.name, "namespace": one.namespace, "network": one.is_network} for one in addons]
            return Result(values={"addons": rows})
        addon = _only(addons, params)
        with self.folder_there() as folder:
            options = self._options(addon, folder, params)
            digest = options["chart_digest"].removeprefix("sha256:")
            values = {"chart_digest": f"sha256:{digest}" if digest else "", "path": "", "removed": []}
            plan = self._there({**options, "state": "planned"})
            if check_mode or not plan["changed"]:
                return _result(plan, values)
            if plan["objects"]:
                values |= self._save(addon, {**options, "path": f"{folder}/objects.age"}, params)
            return _result(self._there({**options, "state": "applied"}), values, diff=plan.get("diff"))

    def _addons(self, site: Site, before: tuple[Addon, ...]) -> tuple[Addon, ...]:
        """Return ``before`` and the add-ons of the site; their values may be templates or in a vault.

        Raises ADDON_INVALID.
        """
        path = site.root / FILE
        if not path.exists():
            return before
        document_of(read_bytes(path))
        try:
            document = self._templar.template(
                self._loader.load_from_file(str(path), cache="none", trusted_as_template=True)
            )
        except AnsibleError as error:
            problem = type(error).__name__
        else:
            return parse_addons(document, before=before)
        raise SiteError(  # raised outside of the handler, because the cause may quote a value
            f"expected {path} as YAML whose templates and vaults open, got {problem}", reason=Reason.ADDON_INVALID
        )

    def _options(self, addon: Addon, folder: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the chart, and return the options of the module on the node."""
        chart, digest = f"{addon.chart}@{addon.digest}" if addon.is_remote else "", addon.digest
        if addon.chart and not addon.is_remote:
            packed = read_chart(Path(params["site"]), addon)
            chart, digest = f"{folder}/chart{packed.suffix}", packed.digest
            self._transfer_data(chart, packed.data)
        return {
            "name": addon.name,
            "namespace": addon.namespace,
            "chart": chart,
            "chart_digest": digest,
            "registry_config": registry_config(addon, params["registry_credentials"]),
            "values": base64.b64encode(json.dumps(addon.values).encode()).decode("ascii"),
            "timeout_seconds": addon.timeout_seconds,
            "adopt": addon.adopt,
            "kubeconfig": params["kubeconfig"],
        }

    def _save(self, addon: Addon, options: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
        """Fetch an encrypted copy of the custom objects, and remove the oldest ones; raises KIT_KEY_UNUSABLE."""
        require_recipients(params["recipients"])
        saved = self._there({**options, "state": "saved", "recipients": params["recipients"]})
        directory = Path(params["directory"]).resolve()
        make_directory(directory)
        target = directory / copy_name(addon, f"{SystemClock().now():%Y%m%dT%H%M%SZ}")
        self.fetch(options["path"], target, str(saved["file_sha256"]))
        gone = surplus_copies(addon, (path.name for path in directory.iterdir()), keep=params["keep"])
        for name in gone:
            remove(directory / name)
        return {"path": str(target), "removed": list(gone)}

    def _there(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return run_module_there(self.execute, _NODE_MODULE, options)


def _network_plugin(params: Mapping[str, Any]) -> tuple[Addon, ...]:
    """Return the network plugin of the site as its first add-on, with the image from the bundle."""
    name = params["network_plugin"]
    if name == "none":
        return ()
    image = params["image"] or open_bundle(params["bundle"]).manifest.image(name).reference
    return (network_plugin(name, _CHARTS, image=image, pod_subnet=params["pod_subnet"]),)


def _only(addons: tuple[Addon, ...], params: Mapping[str, Any]) -> Addon:
    name, namespace = params["name"], params["namespace"]
    found = [one for one in addons if one.name == name and namespace in (None, one.namespace)]
    if len(found) != 1:
        raise SiteError(f"expected one add-on {name} in {FILE}, got {len(found)}", reason=Reason.ADDON_INVALID)
    return found[0]


def _result(answer: Mapping[str, Any], values: Mapping[str, Any], *, diff: Any = None) -> Result:
    shown = diff or answer.get("diff")
    return Result(
        changed=bool(answer["changed"]),
        values={**values, **{name: answer[name] for name in ("definitions", "objects", "put_back")}},
        diff=Diff(before=shown["before"], after=shown["after"]) if shown else None,
        warnings=tuple(answer.get("warnings", ())),
    )
