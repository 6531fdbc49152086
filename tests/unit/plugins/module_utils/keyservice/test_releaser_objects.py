# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other objects say of a machine: whose its disk is, and whether a revocation of it was taken back.

From memory and from the API alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, POLICIES
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed

DISK = "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69"
OTHER = "b2" * 32


@pytest.fixture(params=["from memory", "from the API"])
def bed(request: pytest.FixtureRequest) -> Bed:
    made = Bed()
    if request.param == "from memory":
        made.watch()
    return made


def write(bed: Bed, *, node: str, role: str, admission: Admission = Admission.APPROVED, **spec: Any) -> None:
    """Write another machine's identity with `DISK`, also into the cache."""
    name = f"ek-{OTHER[:20]}"
    said = {"ekSha256": OTHER, "nodeName": node, "role": role, "admission": admission.value, **spec}
    head = {"apiVersion": "attested-kubernetes.dev/v1alpha1", "kind": "NodeIdentity", "metadata": {"name": name}}
    bed.gateway.apply({**head, "spec": said})
    revision = next(one for one in bed.gateway.objects(IDENTITIES) if one["metadata"]["name"] == name)["metadata"]
    bed.gateway.merge(IDENTITIES, name, {"status": {"diskId": DISK}}, revision=revision["resourceVersion"])
    if bed.cached.caches[IDENTITIES]._following:
        bed.follow(IDENTITIES)


def test_an_heir_of_the_same_role_gets_the_disk(bed: Bed) -> None:
    write(bed, node="w-1", role="worker", admission=Admission.REVOKED, replacedBy=bed.identity.name)
    bed.release()
    assert bed.status()["diskId"] == DISK


def test_a_worker_is_no_heir_of_a_control_plane(bed: Bed) -> None:
    write(bed, node="w-1", role="control-plane", admission=Admission.REVOKED, replacedBy=bed.identity.name)
    assert code_of(bed.release) == "DISK_ID_TAKEN"
    assert bed.status() == {}


@pytest.mark.parametrize("admission", Admission)
def test_a_disk_that_another_node_has(bed: Bed, admission: Admission) -> None:
    bed.release()
    write(bed, node="w-2", role="worker", admission=admission)
    bed.release()
    revision = bed.gateway.object(IDENTITIES, bed.identity.name)["metadata"]["resourceVersion"]  # type: ignore[index]
    bed.gateway.merge(IDENTITIES, bed.identity.name, {"status": {"diskId": DISK}}, revision=revision)
    if bed.cached.caches[IDENTITIES]._following:
        bed.follow(IDENTITIES)
    assert code_of(bed.release) == "DISK_ID_TAKEN"


# ---- a revocation that was a mistake


def say(bed: Bed, admission: Admission) -> None:
    bed.gateway.apply(render_identity(replace(bed.identity, admission=admission)))
    if bed.cached.caches[IDENTITIES]._following:
        bed.follow(IDENTITIES)


def sign(bed: Bed, **changes: Any) -> None:
    bed.sign(**changes)
    if bed.cached.caches[POLICIES]._following:
        bed.follow(POLICIES)


def test_a_revoked_machine_comes_back_when_the_site_signs_it(bed: Bed) -> None:
    bed.release()
    disk = bed.status()["diskId"]
    say(bed, Admission.REVOKED)
    assert code_of(bed.release) == "IDENTITY_REVOKED"
    sign(bed, reinstated=[bed.identity.ek_sha256])
    assert code_of(bed.release) == "IDENTITY_REVOKED"  # the object still says so
    say(bed, Admission.APPROVED)
    bed.release()
    assert bed.status()["diskId"] == disk
    say(bed, Admission.REVOKED)
    assert code_of(bed.release) == "IDENTITY_REVOKED"


@pytest.mark.parametrize("signed", [True, False])
def test_an_object_alone_brings_nobody_back(bed: Bed, *, signed: bool) -> None:
    say(bed, Admission.REVOKED)
    assert code_of(bed.release) == "IDENTITY_REVOKED"
    if signed:
        sign(bed, revoked=[bed.identity.ek_sha256])
    say(bed, Admission.APPROVED)
    assert code_of(bed.release) == ("IDENTITY_REVOKED" if signed else "POLICY_ROLLED_BACK")
