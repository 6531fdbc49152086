# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the policy object of the API with the record of what this control plane has seen."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError
from ..policy.cluster import POLICY_KIND, POLICY_NAME
from ..policy.manifest import API_VERSION
from ..policy.record import missing_revocations
from ..policy.signature import verify_policy
from ..reasons import Reason
from .live_policy import Judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..policy.cluster import ClusterPolicy
    from ..policy.record import Seen
    from .record import PolicyRecord


class PolicyAuthority:
    """Decides whether an object is the policy in force: signed by the site, and not older than the record.

    It holds a public key, the cluster id and the record, and so no secret.
    """

    def __init__(self, record: PolicyRecord, *, public_key: bytes, cluster_id: bytes) -> None:
        """Compare with ``record``; ``public_key`` (PEM) is the site's policy key."""
        self._record = record
        self._public_key = public_key
        self._cluster_id = cluster_id
        self._lock = threading.Lock()
        self._known: tuple[object, ClusterPolicy] | None = None

    def judge(self, document: Mapping[str, Any] | None) -> Judged:
        """Return the policy of the API's object, and the revocations that must be found in other objects.

        1. There is a record. POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK
        2. There is a policy. POLICY_ABSENT
        3. The site signed it. MANIFEST_INVALID, POLICY_SIGNATURE, POLICY_KEY_UNUSABLE
        4. It is not older than the record; anything new is recorded first. POLICY_ROLLED_BACK, TPM_…

        The caller must look for `Judged.missing` in the identities.
        """
        self._record.current()  # 1
        if document is None:  # 2
            raise PolicyError("expected AttestationPolicy/cluster in the API, found none", reason=Reason.POLICY_ABSENT)
        policy = self._verified(document)  # 3
        return _judged(policy, self._record.follow(policy))  # 4

    def vouched(self, document: Mapping[str, Any] | None) -> bytes:
        """Return the API's object as JSON, in the form that begins the record of a further control plane.

        1. This record is intact: its file and its counter agree now. POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK, TPM_…
        2. The object is the policy in force. Raises as `judge`.
        3. It signs every revocation that was seen, so the new record lacks none. REVOCATION_UNSIGNED
        """
        self._record.require_intact()  # 1
        judged = self.judge(document)  # 2
        if judged.missing:  # 3
            raise PolicyError(
                f"expected every revocation in the signed policy, {', '.join(sorted(judged.missing))} is not",
                reason=Reason.REVOCATION_UNSIGNED,
            )
        spec = (document or {})["spec"]  # `judge` has checked that it exists
        policy = {"apiVersion": API_VERSION, "kind": POLICY_KIND, "metadata": {"name": POLICY_NAME}, "spec": spec}
        return json.dumps(policy, sort_keys=True).encode()

    def note_revoked(self, revoked: Iterable[str]) -> None:
        """Record that these endorsement keys were revoked; raises as the record does."""
        self._record.note_revoked(revoked)

    def adopt(self, document: Mapping[str, Any]) -> Seen:
        """Begin the record again with a policy from the site; raises as `judge`."""
        return self._record.adopt(self._verified(document))

    def seen(self) -> Seen:
        """Return the content of the record; raises POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK."""
        return self._record.current().seen

    def _verified(self, document: Mapping[str, Any]) -> ClusterPolicy:
        """Return the verified policy; an unchanged spec is verified once."""
        spec = document.get("spec")
        with self._lock:
            if self._known is not None and self._known[0] == spec:
                return self._known[1]
        policy = verify_policy(document, public_key=self._public_key, cluster_id=self._cluster_id)
        with self._lock:
            self._known = (spec, policy)
        return policy


def _judged(policy: ClusterPolicy, seen: Seen) -> Judged:
    return Judged(policy=policy, revoked=seen.revoked, missing=missing_revocations(seen, policy))
