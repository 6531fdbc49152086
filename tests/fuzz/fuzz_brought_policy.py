# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy that comes with an init: the first byte says whether the rest is the policy or what is beside it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_identity,
    render_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import verify_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import BroughtPolicy, pack_policy
from ansible_collections.attested.kubernetes.tests.support.brought import packed
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY

CLUSTER = bytes(range(32))
GOOD = packed(CLUSTER)
POLICY, OBJECTS = b"p", b"o"


def seeds() -> list[bytes]:
    return [POLICY + GOOD["policy"], OBJECTS + GOOD["policy_objects"]]


def one_input(data: bytes) -> None:
    policy, objects = (data[1:], GOOD["policy_objects"]) if data[:1] == POLICY else (GOOD["policy"], data[1:])
    found = BroughtPolicy.verified(policy, objects, public_key=POLICY_KEY, cluster_id=CLUSTER)
    (document,) = load_documents(found.document())  # what is handed on is good by itself
    assert verify_policy(document, public_key=POLICY_KEY, cluster_id=CLUSTER).generation == found.generation == 1
    told = [*map(render_profile, found.manifests.profiles), *map(render_identity, found.manifests.identities)]
    assert parse_documents([("objects", "".join(map(render_document, told)))]) == found.manifests
    again = pack_policy(document, profiles=found.manifests.profiles, identities=found.manifests.identities)
    assert BroughtPolicy.verified(*again, public_key=POLICY_KEY, cluster_id=CLUSTER) == found
