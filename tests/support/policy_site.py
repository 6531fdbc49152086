# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's policy key, its signatures, and a guard with a record in a directory and a counter in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import Judged
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.record import (
    PolicyAuthority,
    PolicyRecord,
    RecordFiles,
    RecordKey,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import ClusterPolicy, plan_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    API_VERSION,
    IDENTITY_KIND,
    PROFILE_KIND,
    parse_objects,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import sign_policy
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"site's policy key, for tests 32 B"[:32])
PRIVATE_KEY = _KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
POLICY_KEY = _KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class MemoryCounter:
    """A counter that outlives the process of the record, like a TPM's."""

    def __init__(self, first: int = 40) -> None:
        self.first = first
        self.value: int | None = None

    def read(self) -> int | None:
        """Return the value."""
        return self.value

    def define(self) -> int:
        """Return the value; creates a missing counter."""
        if self.value is None:
            self.value = self.first
        return self.value

    def increment(self) -> int:
        """Increment the counter."""
        assert self.value is not None
        self.value += 1
        return self.value


def record_in(directory: Path, counter: MemoryCounter, *, cluster_id: bytes, node: str = "cp-1") -> PolicyRecord:
    """Return the loaded record of a control plane whose disk is ``directory``."""
    key = RecordKey(key=SecretBytes(b"r" * 32), cluster_id=cluster_id, node_name=node)
    made = PolicyRecord(RecordFiles(directory), counter, key)
    made.load()
    return made


class PolicySite:
    """The admin of one cluster: signs the given objects, with the next generation each time."""

    def __init__(self, cluster_id: bytes) -> None:
        self.cluster_id = cluster_id
        self.generation = 0

    def sign(self, objects: Iterable[Mapping[str, Any]], **changes: Any) -> dict[str, Any]:
        """Return the signed policy over profiles and identities (documents of any source)."""
        self.generation += 1
        return self.signed(self.plan(objects, **{"generation": self.generation, **changes}))

    def plan(self, objects: Iterable[Mapping[str, Any]], **changes: Any) -> ClusterPolicy:
        """Return the policy, unsigned."""
        named = [(str(number), _plain(one)) for number, one in enumerate(objects)]
        found = parse_objects(named)
        parts = {"profiles": found.profiles, "identities": found.identities, "revoked": (), **changes}
        return plan_policy(generation=parts.pop("generation", self.generation), **parts)

    def signed(self, policy: ClusterPolicy) -> dict[str, Any]:
        """Return the manifest of a policy."""
        return sign_policy(policy, private_key=PRIVATE_KEY, cluster_id=self.cluster_id)


class GivenPolicy:
    """A guard that accepts one policy regardless of the API, for tests of the code behind it."""

    def __init__(self, *profiles: Mapping[str, Any], identities: Iterable[Mapping[str, Any]] = ()) -> None:
        self.policy = PolicySite(b"").plan([*profiles, *identities], generation=1)
        self.revoked: frozenset[str] = frozenset()

    def judge(self, document: Mapping[str, Any] | None) -> Judged:
        """Return the given policy."""
        return Judged(policy=self.policy, revoked=self.revoked, missing=frozenset())

    def note_revoked(self, revoked: Iterable[str]) -> None:
        """Record revocations."""
        self.revoked |= frozenset(revoked)


def authority_of(record: PolicyRecord, *, cluster_id: bytes) -> PolicyAuthority:
    """Return the guard over a record."""
    return PolicyAuthority(record, public_key=POLICY_KEY, cluster_id=cluster_id)


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    kind = document.get("kind") or (PROFILE_KIND if "registers" in document["spec"] else IDENTITY_KIND)
    plain = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": document["metadata"]["name"]}}
    return json.loads(json.dumps({**plain, "spec": document["spec"]}))  # type: ignore[no-any-return]
