# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed policy in an admin's init: one profile, a control plane and a worker, signed by the test site."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import plan_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import sign_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import pack_policy
from ansible_collections.attested.kubernetes.tests.support.policy_site import PRIVATE_KEY

PROFILES = (
    MeasurementProfile(
        name="machines", posture=Posture.BOOT, registers={7: (AllowedValue(b"v" * 32, "{{ as it booted }}"),)}
    ),
)
IDENTITIES = tuple(
    NodeIdentity(ek_sha256=f"{number:064x}", node_name=name, role=role, admission=Admission.APPROVED)
    for number, (name, role) in enumerate([("cp-1", Role.CONTROL_PLANE), ("w-1", Role.WORKER)])
)


def packed(cluster_id: bytes, *, generation: int = 1, private_key: bytes = PRIVATE_KEY) -> dict[str, bytes]:
    """Return the two fields of an order."""
    policy = plan_policy(generation=generation, profiles=PROFILES, identities=IDENTITIES, revoked=())
    document = sign_policy(policy, private_key=private_key, cluster_id=cluster_id)
    policy_field, objects = pack_policy(document, profiles=PROFILES, identities=IDENTITIES)
    return {"policy": policy_field, "policy_objects": objects}
