# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``measurement_profile_info``: the active profiles of the site, read on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import load_profiles, render_objects
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.profile_orders import (
    approval_digest,
    single_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    site_policy_spec,
    site_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import (
    NextBoot,
    Shown,
    judge,
    judge_next_boot,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import MAX_IMAGE_BYTES, read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import differences
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import Applicant, least, weaknesses
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile


class ActionModule(AttestedAction):
    """Read, parse strictly, render."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        ArgumentSpec(
            options={
                "profiles": {"type": "list", "elements": "str", "required": True},
                "next_boots": {"type": "list", "elements": "dict", "default": []},
                "next_boot": {"type": "dict"},
                "image": {"type": "path"},
                "shown": {"type": "dict"},
                "learned": {"type": "str"},
            },
            mutually_exclusive=(("next_boot", "image"),),
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG002  # a reader
        """Return the profiles, and the manifests that are applied."""
        directory = Site.at(params["site"]).policy_directory(params["policy_directory"])
        found = load_profiles(directory, params["profiles"])
        values = {
            "profiles": [_shown(one) for one in found],
            "manifests": render_objects(found, ()),
            "differences": [str(one) for one in differences(found)],
            "judged": _judged(params, found),
            "learned": _learned(params["learned"], found) if params["learned"] else {},
        }
        weak = [weakness for one in found for weakness in weaknesses(one)]
        return Result(values=values, warnings=(*weak, *_warnings(params["next_boots"], found, SystemClock().now())))


def _judged(params: Mapping[str, Any], profiles: Sequence[MeasurementProfile]) -> dict[str, str]:
    """Return whether the machine is admitted after the given boot, empty without one."""
    if params["image"]:
        path = params["image"]
        boot = NextBoot(path=path, image=read_image(read_bytes(path, limit=MAX_IMAGE_BYTES)))
    elif params["next_boot"]:
        boot = NextBoot.of_mapping(params["next_boot"])
    else:
        return {}
    judged = judge(boot, profiles, now=SystemClock().now(), shown=_shown_boot(params["shown"] or {}, profiles))
    return {"verdict": judged.verdict.value, "profile": judged.profile, "why": judged.why}


def _shown_boot(shown: Mapping[str, Any], profiles: Sequence[MeasurementProfile]) -> Shown:
    """Return what the machine proved, from a result of attestation_verification."""
    if not shown:
        return Shown()
    try:
        return Shown(
            registers={int(pcr): bytes.fromhex(value) for pcr, value in shown["registers"].items()},
            applicant=Applicant(role=Role(shown["role"]), ek_sha256=shown["ek_proven"]),
            profile=next((one for one in profiles if one.name == shown["profile"]), None),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PolicyError(
            f"expected what attestation_verification returns in shown, got something else ({str(error)[:100]})",
            reason=Reason.OPTION_INVALID,
        ) from error


def _learned(manifest: str, profiles: Sequence[MeasurementProfile]) -> dict[str, Any]:
    """Return the digest of the learned values, and how they differ from the most similar profile."""
    profile = single_profile(manifest)
    compared = [differences((one, profile)) for one in profiles]
    nearest = min(compared, key=len, default=())
    return {
        "digest": approval_digest(profile),
        "differences": [line for one in nearest for line in str(one).split("\n")],
    }


def _warnings(
    boots: Sequence[Mapping[str, Any]], profiles: Sequence[MeasurementProfile], now: datetime
) -> Iterator[str]:
    for one in boots:
        try:
            warning = judge_next_boot(NextBoot.of_mapping(one), profiles, now=now)
        except PolicyError as error:
            warning = error.message
        if warning:
            yield warning


def _shown(profile: MeasurementProfile) -> dict[str, Any]:
    registers = {
        str(pcr): [{"sha256": value.digest.hex(), "label": value.label} for value in allowed]
        for pcr, allowed in sorted(profile.registers.items())
    }
    return {
        "name": profile.name,
        "posture": least(profile.posture, profile.reach).value,
        "registers": registers,
        "assertions": render_profile(profile)["spec"].get("assertions", {}),
        "expires": profile.expires.isoformat() if profile.expires else "",
        "retired": profile.retired,
        "roles": [role.value for role in profile.roles],
        "machines": list(profile.machines),
    }
