# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine is which node, and what it may have booted: pure. Private to the collection."""

from __future__ import annotations

from .decision import EventDeviation, MeasurementMismatch, RegisterDeviation, Verdict, decide
from .documents import parse_documents, render_document
from .identity import Admission, IdentityStatus, NodeIdentity, Role, TpmRecord, find_identity, identity_name
from .in_force import PolicyInForce, SitePolicy, register_selection
from .learn import DEFAULT_REGISTERS, learn_profile
from .manifest import (
    API_VERSION,
    IDENTITY_KIND,
    PROFILE_KIND,
    Manifests,
    parse_objects,
    render_identity,
    render_profile,
)
from .profile import FIRST_RESETTABLE_REGISTER, AllowedValue, MeasuredEvent, MeasurementProfile, Posture

__all__ = [
    "API_VERSION",
    "DEFAULT_REGISTERS",
    "FIRST_RESETTABLE_REGISTER",
    "IDENTITY_KIND",
    "PROFILE_KIND",
    "Admission",
    "AllowedValue",
    "EventDeviation",
    "IdentityStatus",
    "Manifests",
    "MeasuredEvent",
    "MeasurementMismatch",
    "MeasurementProfile",
    "NodeIdentity",
    "PolicyInForce",
    "Posture",
    "RegisterDeviation",
    "Role",
    "SitePolicy",
    "TpmRecord",
    "Verdict",
    "decide",
    "find_identity",
    "identity_name",
    "learn_profile",
    "parse_documents",
    "parse_objects",
    "register_selection",
    "render_document",
    "render_identity",
    "render_profile",
]
