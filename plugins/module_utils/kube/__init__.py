# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes API: identities, profiles and Nodes. Private to the collection; alone in knowing the library."""

from __future__ import annotations

from .attempts import (
    ATTEMPT_KIND,
    STRANGER,
    Attempt,
    AttemptPlan,
    AttemptSink,
    AttemptWriter,
    plan_attempts,
    render_event,
)
from .gateway import (
    ATTEMPTS,
    IDENTITIES,
    POLICIES,
    PROFILES,
    SERVING_SIGNER,
    ApiGateway,
    Gateway,
    ObjectWriter,
    Reader,
    RequestDesk,
)
from .http import Credential, CredentialFiles
from .live import Guard, Judged, LivePolicy, Registration, Snapshot, StatusChange, StatusWriter
from .marks import TAINT, TAINT_EFFECT, StandingWatcher, plan_mark
from .near import NearPolicy, NearReader, ObjectCache
from .nodes import ADMITTED, JOINED, NodeWatcher, newly_joined
from .turns import (
    CONTROL_PLANE_LABEL,
    LEASE,
    LEASE_LIFE,
    LEASE_NAMESPACE,
    JoinTurns,
    Turn,
    TurnApi,
    free_turn,
    has_joined,
    take_turn,
)
from .usage import MAX_NAMED, UsageWatcher, UsageWrite, plan_usage
from .waiting import CLAIM, Arrival, WaitingPlan, WaitingRoom, plan_waiting, render_waiting

__all__ = [
    "ADMITTED",
    "ATTEMPTS",
    "ATTEMPT_KIND",
    "CLAIM",
    "CONTROL_PLANE_LABEL",
    "IDENTITIES",
    "JOINED",
    "LEASE",
    "LEASE_LIFE",
    "LEASE_NAMESPACE",
    "MAX_NAMED",
    "POLICIES",
    "PROFILES",
    "SERVING_SIGNER",
    "STRANGER",
    "TAINT",
    "TAINT_EFFECT",
    "ApiGateway",
    "Arrival",
    "Attempt",
    "AttemptPlan",
    "AttemptSink",
    "AttemptWriter",
    "Credential",
    "CredentialFiles",
    "Gateway",
    "Guard",
    "JoinTurns",
    "Judged",
    "LivePolicy",
    "NearPolicy",
    "NearReader",
    "NodeWatcher",
    "ObjectCache",
    "ObjectWriter",
    "Reader",
    "Registration",
    "RequestDesk",
    "Snapshot",
    "StandingWatcher",
    "StatusChange",
    "StatusWriter",
    "Turn",
    "TurnApi",
    "UsageWatcher",
    "UsageWrite",
    "WaitingPlan",
    "WaitingRoom",
    "free_turn",
    "has_joined",
    "newly_joined",
    "plan_attempts",
    "plan_mark",
    "plan_usage",
    "plan_waiting",
    "render_event",
    "render_waiting",
    "take_turn",
]
