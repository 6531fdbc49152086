# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a cluster's authorities, and how each gets a successor without anybody being refused. Private."""

from __future__ import annotations

from .files import AuthorityFiles, believe_as_kubelet, forget_serving, observe_kubelet
from .halves import Successor, make_successor, require_pair, signer_of, split
from .parcel import parse_successors, render_successors
from .phases import LeafRenewal, PlaneRotation, Services
from .plan import (
    TOKEN_LIFE,
    AuthorityPhase,
    AuthorityPlan,
    FoundAuthorities,
    KubeletAuthorities,
    PlaneAuthorities,
    plan_authorities,
)
from .table import AUTHORITIES, CERTIFYING, CLUSTER, ETCD, FRONT_PROXY, SERVICE_ACCOUNTS, Authority

__all__ = [
    "AUTHORITIES",
    "CERTIFYING",
    "CLUSTER",
    "ETCD",
    "FRONT_PROXY",
    "SERVICE_ACCOUNTS",
    "TOKEN_LIFE",
    "Authority",
    "AuthorityFiles",
    "AuthorityPhase",
    "AuthorityPlan",
    "FoundAuthorities",
    "KubeletAuthorities",
    "LeafRenewal",
    "PlaneAuthorities",
    "PlaneRotation",
    "Services",
    "Successor",
    "believe_as_kubelet",
    "forget_serving",
    "make_successor",
    "observe_kubelet",
    "parse_successors",
    "plan_authorities",
    "render_successors",
    "require_pair",
    "signer_of",
    "split",
]
