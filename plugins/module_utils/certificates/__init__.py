# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificates of a control plane itself: which are due, and how they are renewed without losing any. Private."""

from __future__ import annotations

from .leaf import Leaf, verify_renewed
from .members import EtcdMembers
from .plan import WINDOW, RenewalPlan, first_to_end, plan, renews
from .pods import RESTARTED_AT, PodReader, StaticPods, arguments_of, probe_of, runs_since, stamped
from .renewal import ControlPlaneRenewal, Members, Pods, Turns, read_leaves
from .table import API_SERVER, CERTIFICATES, ETCD, NOBODY, ORDER, Certificate

__all__ = [
    "API_SERVER",
    "CERTIFICATES",
    "ETCD",
    "NOBODY",
    "ORDER",
    "RESTARTED_AT",
    "WINDOW",
    "Certificate",
    "ControlPlaneRenewal",
    "EtcdMembers",
    "Leaf",
    "Members",
    "PodReader",
    "Pods",
    "RenewalPlan",
    "StaticPods",
    "Turns",
    "arguments_of",
    "first_to_end",
    "plan",
    "probe_of",
    "read_leaves",
    "renews",
    "runs_since",
    "stamped",
    "verify_renewed",
]
