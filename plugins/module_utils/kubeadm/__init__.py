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
from .files import has_taken, keep_taken
from .form import node_spec, run_cluster, run_info, run_objects
from .founded import ReturningFounder
from .gateway import KubeletUnit, last_words
from .held import HELD, Held, held_by, require_nothing_held
from .inventory import ClusterView, join_identities, read_cluster
from .joiners import tell_joiners
from .kubectl import Kubectl
from .member import MEMBER_OPERATION, ControlPlaneMember
from .node import JoinMaterial, Worker
from .operation import Machine
from .phases import INIT_PHASES, JOIN_PHASES, MEMBER_PHASES, Phase
from .plan import Plan
from .plane_encryption import PlaneEncryption, parse_keys, render_keys
from .pod_security import BASELINE, LEVELS, PRIVILEGED, PodSecurity
from .policy_record import run_record, run_record_info
from .render import admission_file, admission_path, plugin_arguments
from .reset import Reset, ResetPlan
from .rewriting import rewrite
from .rotation import FoundKeys, PlaneKeys, RotationPhase, RotationPlan, plan_rotation
from .spec import ClusterSpec, KubernetesPaths, NodeSpec, is_node_name, require_pod_security
from .stored import Etcd, EtcdGateway, survey

__all__ = [
    "BASELINE",
    "CLEAR",
    "HELD",
    "INIT_PHASES",
    "JOIN_PHASES",
    "LEVELS",
    "MEMBER_OPERATION",
    "MEMBER_PHASES",
    "PRIVILEGED",
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
    "PodSecurity",
    "Reset",
    "ResetPlan",
    "ReturningFounder",
    "RotationPhase",
    "RotationPlan",
    "Validity",
    "Wish",
    "Worker",
    "admission_file",
    "admission_path",
    "authorities_of",
    "believing",
    "embedded_credential",
    "has_taken",
    "held_by",
    "is_node_name",
    "issue_admin_certificate",
    "join_identities",
    "keep_taken",
    "last_words",
    "list_attempts",
    "name_key",
    "node_spec",
    "parse_keys",
    "place",
    "plan_admission",
    "plan_rotation",
    "plugin_arguments",
    "read_cluster",
    "remaining_seconds",
    "render_keys",
    "require_nothing_held",
    "require_pair",
    "require_pod_security",
    "rewrite",
    "run_admission",
    "run_attempts",
    "run_cluster",
    "run_info",
    "run_objects",
    "run_record",
    "run_record_info",
    "survey",
    "tell_joiners",
    "validity",
    "validity_of",
]
