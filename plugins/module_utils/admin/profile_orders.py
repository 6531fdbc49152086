# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the profile that an admin requests: keep it, merge several, compute it from an image, or retire it."""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import read_bytes
from ..errors import PolicyError
from ..evidence.image.pe import MAX_IMAGE_BYTES, read_image
from ..evidence.image.prediction import PHASES, predict, predict_profile
from ..policy.learning import differences, merge_profiles
from ..policy.manifest import parse_documents, render_document, render_profile
from ..policy.profile import AllowedValue
from ..reasons import Reason
from .identities import load_profiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.learning import Difference
    from ..policy.profile import MeasurementProfile


def ordered_profile(directory: Path, params: Mapping[str, Any]) -> tuple[MeasurementProfile, tuple[Difference, ...]]:
    """Return the profile that ``params`` (options of measurement_profile) request, and how its parts differ.

    ``directory`` holds the site's profiles. Raises PROFILE_UNKNOWN, MANIFEST_INVALID, PROFILES_UNLIKE, IMAGE_MALFORMED,
    PREDICTION_INCOMPLETE, FILE_UNUSABLE.
    """
    if params["state"] == "retired":
        return dataclasses.replace(load_profiles(directory, [params["name"]])[0], retired=True), ()
    found: tuple[Difference, ...] = ()
    if params["image"]:
        profile = _computed(directory, params)
    else:
        parts = [single_profile(text) for text in params["manifests"] or [params["manifest"]]]
        found = differences(parts)
        profile = parts[0] if len(parts) == 1 else merge_profiles(params["name"], parts)
    return _finished(profile, params), found


def _computed(directory: Path, params: Mapping[str, Any]) -> MeasurementProfile:
    base = load_profiles(directory, [params["base"]])[0]
    chosen = params["secure_boot"]
    prediction = predict(
        read_image(read_bytes(params["image"], limit=MAX_IMAGE_BYTES)),
        secure_boot=base.assertions.secure_boot if chosen is None else chosen,
        command_line=params["command_line"],
        phases=params["phases"] or PHASES,
        reference=base.reference_events,
    )
    return predict_profile(base, params["name"], prediction, label=params["label"] or Path(params["image"]).name)


def _finished(profile: MeasurementProfile, params: Mapping[str, Any]) -> MeasurementProfile:
    """Return the profile with the requested name, label and expiry."""
    changes: dict[str, Any] = {"name": params["name"] or profile.name}
    if params["label"] and not params["image"]:
        changes["registers"] = {
            pcr: tuple(AllowedValue(value.digest, params["label"]) for value in allowed)
            for pcr, allowed in profile.registers.items()
        }
    if params["expires"]:
        changes["expires"] = _moment(params["expires"])
    return dataclasses.replace(profile, **changes)


def _moment(text: str) -> datetime:
    expected = f"expected a time such as 2027-01-31T12:00:00Z for expires, got {text}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise PolicyError(expected, reason=Reason.MANIFEST_INVALID) from error
    if moment.tzinfo is None:
        raise PolicyError(expected, reason=Reason.MANIFEST_INVALID)
    return moment.astimezone(UTC)


def single_profile(text: str) -> MeasurementProfile:
    """Return the one profile of a manifest; raises MANIFEST_INVALID."""
    found = parse_documents([("manifest", text)])
    if len(found.profiles) != 1 or found.identities:
        raise PolicyError(
            f"expected one MeasurementProfile, got {len(found.profiles)} and {len(found.identities)} identities",
            reason=Reason.MANIFEST_INVALID,
        )
    return found.profiles[0]


def approval_digest(profile: MeasurementProfile) -> str:
    """Return a digest of what a profile accepts (SHA-256, hex), equal for machines with the same measurements."""
    accepted = {
        pcr: tuple(sorted((AllowedValue(value.digest, "") for value in allowed), key=lambda value: value.digest))
        for pcr, allowed in sorted(profile.registers.items())
    }
    bare = dataclasses.replace(profile, name="approval", registers=accepted, reference_events=(), expires=None)
    return hashlib.sha256(render_document(render_profile(bare)).encode()).hexdigest()
