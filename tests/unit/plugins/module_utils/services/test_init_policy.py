# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy that comes with an init: what the machine takes of it, and one point changed at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import render_objects
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import Manifests
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import verify_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import BroughtPolicy
from ansible_collections.attested.kubernetes.tests.support.brought import IDENTITIES, PROFILES, packed
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.policy.test_cluster import PRIVATE

CLUSTER = bytes(range(32))


def brought(**changes: bytes) -> BroughtPolicy:
    return verified({**packed(CLUSTER), **changes})


def verified(fields: dict[str, bytes], *, cluster_id: bytes = CLUSTER) -> BroughtPolicy:
    return BroughtPolicy.verified(
        fields["policy"], fields["policy_objects"], public_key=POLICY_KEY, cluster_id=cluster_id
    )


def code(**changes: bytes) -> str:
    with pytest.raises(AttestedError) as caught:
        brought(**changes)
    return caught.value.code


def test_what_the_site_signed_is_what_the_machine_has() -> None:
    found = verified(packed(CLUSTER, generation=7))
    assert (found.generation, found.manifests) == (7, Manifests(PROFILES, IDENTITIES))


def test_the_key_service_and_the_api_are_given_what_the_role_would_apply() -> None:
    """The text of a machine's log is no template: it comes through as it is."""
    found = brought()
    (document,) = load_documents(found.document())
    assert verify_policy(document, public_key=POLICY_KEY, cluster_id=CLUSTER).generation == 1
    assert found.objects() == render_objects(PROFILES, IDENTITIES) + found.document()
    assert "{{ as it booted }}" in found.objects()


def test_one_site_packs_the_same_bytes_each_time() -> None:
    assert packed(CLUSTER) == packed(CLUSTER)


def test_a_policy_of_another_key_or_cluster_is_refused() -> None:
    assert code(**packed(CLUSTER, private_key=PRIVATE)) == "POLICY_SIGNATURE"
    with pytest.raises(AttestedError) as caught:
        verified(packed(CLUSTER), cluster_id=bytes(32))
    assert caught.value.code == "POLICY_SIGNATURE"


def with_spec(**changes: Any) -> bytes:
    document = json.loads(packed(CLUSTER)["policy"])
    return json.dumps({**document, "spec": {**document["spec"], **changes}}).encode()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(with_spec(generation=2), "POLICY_SIGNATURE", id="another generation"),
        pytest.param(with_spec(profiles=[]), "POLICY_SIGNATURE", id="without its profile"),
        pytest.param(with_spec(more=1), "MANIFEST_INVALID", id="with a field that nobody knows"),
        pytest.param(b"{}", "MANIFEST_INVALID", id="empty"),
        pytest.param(b"[]", "MANIFEST_INVALID", id="a list"),
        pytest.param(b"kind: AttestationPolicy", "MANIFEST_INVALID", id="no JSON"),
        pytest.param(b"\xff", "MANIFEST_INVALID", id="no text"),
        pytest.param(b'{"kind":"a","kind":"b"}', "MANIFEST_INVALID", id="a member twice"),
        pytest.param(b'{"a":' * 100_000, "MANIFEST_INVALID", id="deeper than anybody reads"),
    ],
)
def test_another_policy_is_refused(policy: bytes, expected: str) -> None:
    assert code(policy=policy) == expected


def beside(*more: dict[str, Any]) -> bytes:
    return json.dumps([*json.loads(packed(CLUSTER)["policy_objects"]), *more]).encode()


ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="an object"),
        pytest.param(b"[1]", id="a number"),
        pytest.param(beside(ROLE), id="something of another kind"),
        pytest.param(beside(json.loads(packed(CLUSTER)["policy"])), id="a second policy"),
        pytest.param(beside(json.loads(packed(CLUSTER)["policy_objects"])[0]), id="a profile twice"),
    ],
)
def test_nothing_but_profiles_and_identities_comes_with_it(objects: bytes) -> None:
    assert code(policy_objects=objects) == "MANIFEST_INVALID"
