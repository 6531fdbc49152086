# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``measurement_profile``: write a profile into the site, on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..module_utils.adapter import ArgumentSpec, Result
from ..module_utils.errors import PolicyError
from ..module_utils.policy import parse_documents, render_document, render_profile
from ..module_utils.reasons import Reason
from ..module_utils.site import Site
from ..plugin_utils.action import AttestedAction
from ..plugin_utils.site_files import write_site_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ActionModule(AttestedAction):
    """Write policy/<name>.yml from a manifest; it is parsed strictly first."""

    SPEC = ArgumentSpec(
        options={
            "site": {"type": "path", "required": True},
            "policy_directory": {"type": "path"},
            "manifest": {"type": "str", "required": True},
            "replace": {"type": "bool", "default": False},
        }
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Parse, compare with what the site has, write."""
        found = parse_documents([("manifest", params["manifest"])])
        if len(found.profiles) != 1 or found.identities:
            raise PolicyError(
                f"expected one MeasurementProfile, got {len(found.profiles)} and {len(found.identities)} identities",
                reason=Reason.MANIFEST_INVALID,
            )
        profile = found.profiles[0]
        path = Site.at(params["site"]).policy_directory(params["policy_directory"]) / f"{profile.name}.yml"
        wanted = render_document(render_profile(profile)).encode()
        _require_replaceable(path, wanted, allowed=params["replace"])
        return write_site_file(path, wanted, check_mode=check_mode, name=profile.name)


def _require_replaceable(path: Path, wanted: bytes, *, allowed: bool) -> None:
    if path.exists() and not allowed and path.read_bytes() != wanted:
        raise PolicyError(
            f"expected no other profile in {path}, found one that differs",
            reason=Reason.PROFILE_EXISTS,
        )
