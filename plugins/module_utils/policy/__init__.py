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
from .cluster import (
    POLICY_KIND,
    POLICY_NAME,
    ClusterPolicy,
    NamedDigest,
    PolicyException,
    identity_sha256,
    plan_policy,
    profile_sha256,
)
from .decision import MeasurementMismatch, RegisterDeviation, Verdict, decide
from .documents import parse_documents, render_document
from .events import ENTRY_MARK, EventDeviation, event_deviations
from .facts import BootFacts, boot_options, given_options
from .identity import (
    Admission,
    EvidenceRefusal,
    IdentityStatus,
    NodeIdentity,
    Role,
    TpmRecord,
    find_identity,
    identity_name,
    inherited_disk,
    is_address,
    require_own_aliases,
)
from .in_force import PolicyInForce, SignedPolicy, SitePolicy, register_selection
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
from .record import Seen, adopt, follow, missing_revocations, require_revocations, rolled_back
from .signature import MAX_REVOKED, sign_policy, verify_policy
from .standing import (
    CONDITION,
    OVERDUE_AFTER,
    Judgement,
    Standing,
    judge_standing,
    require_good_standing,
    shown_time,
)

__all__ = [
    "API_VERSION",
    "CONDITION",
    "DEFAULT_REGISTERS",
    "ENTRY_MARK",
    "FIRMWARE_REGISTER",
    "FIRST_RESETTABLE_REGISTER",
    "GRUB_REGISTER",
    "IDENTITY_KIND",
    "IMAGE_REGISTER",
    "KERNEL_REGISTER",
    "MAX_REVOKED",
    "OVERDUE_AFTER",
    "POLICY_KIND",
    "POLICY_NAME",
    "PROFILE_KIND",
    "REVOKED_LABEL",
    "SECURE_BOOT_REGISTER",
    "STRICT_REGISTERS",
    "Admission",
    "AllowedValue",
    "Assertions",
    "BootFacts",
    "ClusterPolicy",
    "Difference",
    "EventDeviation",
    "EvidenceRefusal",
    "FailedAssertion",
    "IdentityStatus",
    "Judgement",
    "Lockdown",
    "Manifests",
    "MeasuredEvent",
    "MeasurementMismatch",
    "MeasurementProfile",
    "NamedDigest",
    "NodeIdentity",
    "PolicyException",
    "PolicyInForce",
    "Posture",
    "Preset",
    "RegisterDeviation",
    "Role",
    "Seen",
    "SignedPolicy",
    "SitePolicy",
    "Standing",
    "TpmRecord",
    "Verdict",
    "adopt",
    "boot_options",
    "decide",
    "differences",
    "event_deviations",
    "failed_assertions",
    "find_identity",
    "follow",
    "given_options",
    "identity_name",
    "identity_sha256",
    "inherited_disk",
    "is_address",
    "judge_standing",
    "learn_preset",
    "learn_profile",
    "merge_profiles",
    "missing_revocations",
    "parse_documents",
    "parse_objects",
    "plan_policy",
    "preset_registers",
    "profile_sha256",
    "register_selection",
    "render_document",
    "render_identity",
    "render_profile",
    "require_good_standing",
    "require_own_aliases",
    "require_revocations",
    "rolled_back",
    "shown_time",
    "sign_policy",
    "verify_policy",
]
