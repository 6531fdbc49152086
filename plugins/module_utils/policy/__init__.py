# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine is which node, and what it may have booted: pure. Private to the collection."""

from __future__ import annotations

from .assertions import (
    FIRMWARE_REGISTER,
    GRUB_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    SECURE_BOOT_REGISTER,
    Assertions,
    FailedAssertion,
    Lockdown,
    failed_assertions,
)
from .decision import EventDeviation, MeasurementMismatch, RegisterDeviation, Verdict, decide, event_deviations
from .documents import parse_documents, render_document
from .facts import BootFacts, boot_options, given_options
from .identity import (
    Admission,
    IdentityStatus,
    NodeIdentity,
    Role,
    TpmRecord,
    find_identity,
    identity_name,
    inherited_disk,
)
from .in_force import PolicyInForce, SitePolicy, register_selection
from .learn import DEFAULT_REGISTERS, learn_profile
from .manifest import (
    API_VERSION,
    IDENTITY_KIND,
    PROFILE_KIND,
    REVOKED_LABEL,
    Manifests,
    parse_objects,
    render_identity,
    render_profile,
)
from .merge import Difference, differences, merge_profiles
from .presets import STRICT_REGISTERS, Preset, learn_preset, preset_registers
from .profile import FIRST_RESETTABLE_REGISTER, AllowedValue, MeasuredEvent, MeasurementProfile, Posture

__all__ = [
    "API_VERSION",
    "DEFAULT_REGISTERS",
    "FIRMWARE_REGISTER",
    "FIRST_RESETTABLE_REGISTER",
    "GRUB_REGISTER",
    "IDENTITY_KIND",
    "IMAGE_REGISTER",
    "KERNEL_REGISTER",
    "PROFILE_KIND",
    "REVOKED_LABEL",
    "SECURE_BOOT_REGISTER",
    "STRICT_REGISTERS",
    "Admission",
    "AllowedValue",
    "Assertions",
    "BootFacts",
    "Difference",
    "EventDeviation",
    "FailedAssertion",
    "IdentityStatus",
    "Lockdown",
    "Manifests",
    "MeasuredEvent",
    "MeasurementMismatch",
    "MeasurementProfile",
    "NodeIdentity",
    "PolicyInForce",
    "Posture",
    "Preset",
    "RegisterDeviation",
    "Role",
    "SitePolicy",
    "TpmRecord",
    "Verdict",
    "boot_options",
    "decide",
    "differences",
    "event_deviations",
    "failed_assertions",
    "find_identity",
    "given_options",
    "identity_name",
    "inherited_disk",
    "learn_preset",
    "learn_profile",
    "merge_profiles",
    "parse_documents",
    "parse_objects",
    "preset_registers",
    "register_selection",
    "render_document",
    "render_identity",
    "render_profile",
]
