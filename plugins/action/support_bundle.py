# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``support_bundle``: combine the material of the nodes and the committed files of the site."""

from __future__ import annotations

import base64
import binascii
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.release import __version__ as ansible_version
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, release
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    site_policy_spec,
    site_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_bundle import (
    Material,
    Part,
    parse_material,
    render_bundle,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_catalogue import site_sources
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_collect import Collector, Hider
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_TEXT = 32 << 20
_MODE = 0o600


class ActionModule(AttestedAction):
    """Make the bundle; a node without material is a line of the manifest, not a failure of the task."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        ArgumentSpec(
            options={
                "directory": {"type": "path", "required": True},
                "name": {"type": "str", "required": True},
                "results": {"type": "dict", "required": True},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Write the bundle with mode 0600, and return its path."""
        site, hider, clock = Site.at(params["site"]), Hider(), SystemClock()
        collector = Collector(runner=SystemRunner(), hider=hider)
        own = collector.collect(site_sources(site.root, site.policy_directory(params["policy_directory"])))
        parts = [Part(place="site", material=own)]
        parts += [part_of(name, result, hider) for name, result in sorted(params["results"].items())]
        made_at = clock.now()
        name = f"support-{params['name']}-{made_at:%Y%m%dT%H%M%SZ}"
        data, manifest = render_bundle(name, parts, made_at=made_at, facts=_facts())
        path = Path(params["directory"]) / f"{name}.tar.gz"
        if not check_mode:
            _make(path, data)
        return Result(
            changed=True,
            values={
                "path": str(path),
                "size": len(data),
                "files": len(manifest["files"]),
                "hidden": sum(row.get("hidden", 0) for row in manifest["files"]),
                "left_out": [f"{row['part']}: {row['what']}: {row['why']}" for row in manifest["left_out"]],
                "silent": [part.place.partition("/")[2] for part in parts[1:] if not part.material.pieces],
            },
        )


def part_of(name: str, result: Any, hider: Hider) -> Part:
    """Return the part of a node from its task result; a failed result is a part as well, not an error."""
    sent = result.get("material") if isinstance(result, dict) else None
    if not isinstance(sent, str):
        message = (
            str(result.get("msg", "the node returned no result"))
            if isinstance(result, dict)
            else "the node returned no result"
        )
        return Part.failed(name, hider.hide(message)[0])
    try:
        material = parse_material(_decoded(sent))
    except AttestedError as error:
        return Part.failed(name, f"{error.code}: {error.message}")
    return Part.of_node(
        name, Material(pieces=tuple(hider.clean(one) for one in material.pieces), left_out=material.left_out)
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text[:_MAX_TEXT], validate=True)
    except (binascii.Error, ValueError):
        return b""  # no gzip data, which `parse_material` refuses


def _make(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, data, mode=_MODE)
    except OSError as error:
        raise SystemFault(f"cannot write {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _facts() -> dict[str, str]:
    return {
        "attested.kubernetes": release(),
        "ansible-core": ansible_version,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
