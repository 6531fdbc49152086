# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``measurement_profile``: write a profile into the site, on the admin's machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.profile_orders import ordered_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes, remove
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    site_policy_spec,
    site_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_files import write_site_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ActionModule(AttestedAction):
    """Write policy/<name>.yml from one manifest, several, or an image; everything is parsed strictly first."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        ArgumentSpec(
            options={
                "state": {"type": "str", "choices": ["absent", "present", "retired"], "default": "present"},
                "name": {"type": "str"},
                "manifest": {"type": "str"},
                "manifests": {"type": "list", "elements": "str"},
                "image": {"type": "path"},
                "base": {"type": "str"},
                "command_line": {"type": "str"},
                "secure_boot": {"type": "bool"},
                "phases": {"type": "list", "elements": "str"},
                "label": {"type": "str"},
                "expires": {"type": "str"},
                "replace": {"type": "bool", "default": False},
            },
            mutually_exclusive=(("manifest", "manifests", "image"),),
            required_if=(
                ("state", "present", ("manifest", "manifests", "image"), True),
                ("state", "retired", ("name",)),
                ("state", "absent", ("name",)),
            ),
            required_by={"manifests": ("name",), "image": ("name", "base")},
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Parse, compute or merge the profile, compare it with the site's, and write it."""
        directory = Site.at(params["site"]).policy_directory(params["policy_directory"])
        if params["state"] == "absent":
            return _removed(directory / f"{params['name']}.yml", params["name"], check_mode=check_mode)
        profile, differing = ordered_profile(directory, params)
        path = directory / f"{profile.name}.yml"
        wanted = render_document(render_profile(profile)).encode()
        _require_replaceable(path, wanted, allowed=params["replace"] or params["state"] == "retired")
        result = write_site_file(path, wanted, check_mode=check_mode, name=profile.name)
        values = {**result.values, "differences": [str(one) for one in differing]}
        return dataclasses.replace(result, values=values)


def _removed(path: Path, name: str, *, check_mode: bool) -> Result:
    before = read_bytes(path).decode() if path.exists() else ""
    changed = bool(before) if check_mode else remove(path)
    values = {"path": str(path), "name": name, "differences": []}
    return Result(changed=changed, values=values, diff=Diff(before=before, after="", header=str(path)))


def _require_replaceable(path: Path, wanted: bytes, *, allowed: bool) -> None:
    if path.exists() and not allowed and path.read_bytes() != wanted:
        raise PolicyError(
            f"expected no other profile in {path}, found one that differs",
            reason=Reason.PROFILE_EXISTS,
        )
