# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose disk a machine takes over under the signed policy."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import plan_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import (
    Admission,
    IdentityStatus,
    NodeIdentity,
    Role,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import CountingProfiles, SignedPolicy
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

EK, OLD = "a1" * 32, "b2" * 32
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def heir(role: Role = Role.WORKER) -> NodeIdentity:
    return NodeIdentity(ek_sha256=EK, node_name="n-1", role=role, admission=Admission.APPROVED)


def left(role: Role = Role.WORKER) -> NodeIdentity:
    return NodeIdentity(
        ek_sha256=OLD,
        node_name="n-1",
        role=role,
        admission=Admission.REVOKED,
        replaced_by=heir().name,
        status=IdentityStatus(disk_id="disk-a"),
    )


def policy(*identities: NodeIdentity, signed: tuple[NodeIdentity, ...] = ()) -> SignedPolicy:
    wanted = plan_policy(generation=1, profiles=(), identities=signed, revoked=())
    counting = CountingProfiles(wanted, ())
    return SignedPolicy(counting=counting, revoked=frozenset(), identities=identities, ek_sha256=EK, now=NOW)


def test_a_worker_takes_over_a_workers_disk_without_a_signature() -> None:
    assert policy(left(), heir()).inherited_disk(heir()) == "disk-a"


def test_a_control_plane_takes_one_over_that_the_site_signed() -> None:
    plane = heir(Role.CONTROL_PLANE)
    assert policy(left(Role.CONTROL_PLANE), plane, signed=(plane,)).inherited_disk(plane) == "disk-a"
    unsigned = policy(left(Role.CONTROL_PLANE), plane)
    assert code_of(lambda: unsigned.inherited_disk(plane)) == "IDENTITY_UNSIGNED"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(Role.CONTROL_PLANE, Role.WORKER, id="a worker after a control plane"),
        pytest.param(Role.WORKER, Role.CONTROL_PLANE, id="a signed control plane after a worker"),
    ],
)
def test_no_disk_goes_from_one_role_to_the_other(before: Role, after: Role) -> None:
    found = policy(left(before), heir(after), signed=(heir(after),))
    assert code_of(lambda: found.inherited_disk(heir(after))) == "DISK_ID_TAKEN"
