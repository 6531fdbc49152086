# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubeadm and the kubelet: configuration, phases, plan and apply apart. Private to the collection."""

from __future__ import annotations

from .admin import issue_admin_certificate
from .admission import AdmissionPlan, Wish, plan_admission, run_admission
from .api import KubeconfigNodeReader, KubeconfigNodeTeller, NodeReader, NodeView
from .api_server import ApiServer
from .attempts import list_attempts, run_attempts
from .cluster import ControlPlane, InitOutcome
from .credential import (
    KubeletCredential,
    Validity,
    authorities_of,
    believing,
    embedded_credential,
    place,
    remaining_seconds,
    require_pair,
    validity,
    validity_of,
)
from .encryption_file import CLEAR, EncryptionFile, name_key
from .form import node_spec, run_cluster, run_info, run_objects
from .founded import ReturningFounder
from .gateway import KubeletUnit, last_words
from .held import HELD, Held, held_by, require_nothing_held
from .inventory import ClusterView, join_identities, read_cluster
from .kubectl import Kubectl
from .member import MEMBER_OPERATION, ControlPlaneMember
from .node import JoinMaterial, Worker
from .operation import Machine
from .phases import INIT_PHASES, JOIN_PHASES, MEMBER_PHASES, Phase
from .plan import Plan
from .plane_encryption import PlaneEncryption, parse_keys, render_keys
from .policy_record import run_record, run_record_info
from .reset import Reset, ResetPlan
from .rewriting import rewrite
from .rotation import FoundKeys, PlaneKeys, RotationPhase, RotationPlan, plan_rotation
from .spec import ClusterSpec, KubernetesPaths, NodeSpec, is_node_name
from .stored import Etcd, EtcdGateway, survey

__all__ = [
    "CLEAR",
    "HELD",
    "INIT_PHASES",
    "JOIN_PHASES",
    "MEMBER_OPERATION",
    "MEMBER_PHASES",
    "AdmissionPlan",
    "ApiServer",
    "ClusterSpec",
    "ClusterView",
    "ControlPlane",
    "ControlPlaneMember",
    "EncryptionFile",
    "Etcd",
    "EtcdGateway",
    "FoundKeys",
    "Held",
    "InitOutcome",
    "JoinMaterial",
    "KubeconfigNodeReader",
    "KubeconfigNodeTeller",
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
    "PlaneEncryption",
    "PlaneKeys",
    "Reset",
    "ResetPlan",
    "ReturningFounder",
    "RotationPhase",
    "RotationPlan",
    "Validity",
    "Wish",
    "Worker",
    "authorities_of",
    "believing",
    "embedded_credential",
    "held_by",
    "is_node_name",
    "issue_admin_certificate",
    "join_identities",
    "last_words",
    "list_attempts",
    "name_key",
    "node_spec",
    "parse_keys",
    "place",
    "plan_admission",
    "plan_rotation",
    "read_cluster",
    "remaining_seconds",
    "render_keys",
    "require_nothing_held",
    "require_pair",
    "rewrite",
    "run_admission",
    "run_attempts",
    "run_cluster",
    "run_info",
    "run_objects",
    "run_record",
    "run_record_info",
    "survey",
    "validity",
    "validity_of",
]
