# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the policies that a control plane has seen, by which it refuses older ones. Pure.

    ──adopt──▶ seen(generation, content, revoked) ──follow──▶ seen(≥ generation, ≥ revoked)      there is no way back

The only exception is signed by the site: a policy that reinstates a key removes the key's revocation from the record of
every control plane that follows this policy, whichever policies it saw before.

A store with old data (etcd from a snapshot, a disk from a backup) shows a lower generation, the same generation with
other content, or lacks a revocation. Each is POLICY_ROLLED_BACK.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .cluster import ClusterPolicy

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The highest generation with the digest of its content, and every endorsement key that was revoked by then.

    ``reinstated``: keys whose revocation this policy takes back. Until the site signs another policy, an object in the
    API can still revoke such a machine, but that revocation is not recorded.
    """

    generation: int
    content_sha256: str
    revoked: frozenset[str] = frozenset()
    reinstated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, policy: ClusterPolicy) -> Seen:
        """Return the record of a control plane that has seen only this verified policy."""
        return cls(
            generation=policy.generation,
            content_sha256=policy.content_sha256,
            revoked=frozenset(policy.revoked),
            reinstated=frozenset(policy.reinstated),
        )

    def with_revoked(self, revoked: Iterable[str]) -> Seen:
        """Return the record with more revocations, except those of reinstated keys."""
        return replace(self, revoked=self.revoked | (frozenset(revoked) - self.reinstated))


def follow(seen: Seen, policy: ClusterPolicy) -> Seen:
    """Return the record after ``policy`` (verified); equal to ``seen`` if the policy has nothing new.

    1. Its generation is not lower.
    2. At the same generation its content is the same.

    Raises POLICY_ROLLED_BACK. `missing_revocations` returns the revocations that the policy lacks.
    """
    if policy.generation < seen.generation:  # 1
        raise rolled_back(f"generation {seen.generation} of the policy or a later one, got {policy.generation}")
    if policy.generation == seen.generation and policy.content_sha256 != seen.content_sha256:  # 2
        raise rolled_back(f"the content of generation {seen.generation} that was seen before, got another")
    return Seen.of(policy).with_revoked(seen.revoked)


def missing_revocations(seen: Seen, policy: ClusterPolicy) -> frozenset[str]:
    """Return the revocations that ``policy`` neither names nor takes back; objects in the API must still have them."""
    return seen.revoked - frozenset(policy.revoked) - frozenset(policy.reinstated)


def require_revocations(missing: frozenset[str], live: Iterable[str]) -> None:
    """Raise POLICY_ROLLED_BACK unless each of ``missing`` is among the keys that the API's objects revoke."""
    lost = sorted(missing - frozenset(live))
    if lost:
        shown = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
        raise rolled_back(f"the revocation of {shown}, which was seen before, got none")


def adopt(known: Iterable[Seen], policy: ClusterPolicy) -> Seen:
    """Return the record that begins with ``policy`` (verified), which the site gives again, for example after a loss.

    ``known`` are the remaining copies of earlier records: the policy must not be older than any of them, and it must
    name or take back all their revocations. Raises POLICY_ROLLED_BACK.
    """
    wanted = Seen.of(policy)
    for one in known:
        follow(one, policy)
        require_revocations(missing_revocations(one, policy), ())
    return wanted


def rolled_back(expected_and_got: str) -> PolicyError:
    """Return the error POLICY_ROLLED_BACK."""
    return PolicyError(f"expected {expected_and_got}", reason=Reason.POLICY_ROLLED_BACK)
