# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubeadm and the kubelet: configuration, phases, plan and apply apart. Private to the collection."""

from __future__ import annotations

from .admission import AdmissionPlan, Wish, plan_admission, run_admission
from .api import KubeconfigNodeReader, NodeReader, NodeView
from .attempts import list_attempts, run_attempts
from .cluster import ControlPlane, InitOutcome
from .credential import (
    KubeletCredential,
    Validity,
    embedded_credential,
    place,
    remaining_seconds,
    require_pair,
    validity,
    validity_of,
)
from .form import node_spec, run_cluster, run_info, run_objects
from .gateway import KubeletUnit, last_words
from .inventory import ClusterView, join_identities, read_cluster
from .kubectl import Kubectl
from .member import MEMBER_OPERATION, ControlPlaneMember
from .node import JoinMaterial, Worker
from .operation import Machine
from .phases import INIT_PHASES, JOIN_PHASES, MEMBER_PHASES, Phase
from .plan import Plan
from .policy_record import run_record, run_record_info
from .reset import Reset, ResetPlan
from .spec import ClusterSpec, KubernetesPaths, NodeSpec, is_node_name

__all__ = [
    "INIT_PHASES",
    "JOIN_PHASES",
    "MEMBER_OPERATION",
    "MEMBER_PHASES",
    "AdmissionPlan",
    "ClusterSpec",
    "ClusterView",
    "ControlPlane",
    "ControlPlaneMember",
    "InitOutcome",
    "JoinMaterial",
    "KubeconfigNodeReader",
    "Kubectl",
    "KubeletCredential",
    "KubeletUnit",
    "KubernetesPaths",
    "Machine",
    "NodeReader",
    "NodeSpec",
    "NodeView",
    "Phase",
    "Plan",
    "Reset",
    "ResetPlan",
    "Validity",
    "Wish",
    "Worker",
    "embedded_credential",
    "is_node_name",
    "join_identities",
    "last_words",
    "list_attempts",
    "node_spec",
    "place",
    "plan_admission",
    "read_cluster",
    "remaining_seconds",
    "require_pair",
    "run_admission",
    "run_attempts",
    "run_cluster",
    "run_info",
    "run_objects",
    "run_record",
    "run_record_info",
    "validity",
    "validity_of",
]
