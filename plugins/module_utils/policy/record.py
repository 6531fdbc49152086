# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a control plane has seen of the policy, and what it therefore accepts no more: pure.

    ──adopt──▶ seen(generation, content, revoked) ──follow──▶ seen(≥ generation, ≥ revoked)      there is no way back

But for what the site signs: a policy that reinstates a key takes its revocation out of what was seen, for all that
follow this policy or a later one that says so, whichever they saw before.

A store that lies about the past (etcd from an old snapshot, a disk from a backup) shows a lower generation, the same
one with another content, or lacks a revocation; each is POLICY_ROLLED_BACK, for everyone.
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

    ``reinstated``: those whose revocation that very policy takes back. Until the site signs another one, an object in
    the API can still revoke such a machine, and its revocation is not remembered.
    """

    generation: int
    content_sha256: str
    revoked: frozenset[str] = frozenset()
    reinstated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, policy: ClusterPolicy) -> Seen:
        """Return what somebody knows who saw this verified policy and nothing before."""
        return cls(
            generation=policy.generation,
            content_sha256=policy.content_sha256,
            revoked=frozenset(policy.revoked),
            reinstated=frozenset(policy.reinstated),
        )

    def with_revoked(self, revoked: Iterable[str]) -> Seen:
        """Return the same with more revocations, but for those that were taken back."""
        return replace(self, revoked=self.revoked | (frozenset(revoked) - self.reinstated))


def follow(seen: Seen, policy: ClusterPolicy) -> Seen:
    """Return what is known after ``policy`` (verified); equal to ``seen`` where it brings nothing new.

    1. Its generation is not lower.
    2. At the same generation it says the same.

    Raises POLICY_ROLLED_BACK. Revocations that it lacks are looked for elsewhere: see `missing_revocations`.
    """
    if policy.generation < seen.generation:  # 1
        raise rolled_back(f"generation {seen.generation} of the policy or a later one, got {policy.generation}")
    if policy.generation == seen.generation and policy.content_sha256 != seen.content_sha256:  # 2
        raise rolled_back(f"the content of generation {seen.generation} that was seen before, got another")
    return Seen.of(policy).with_revoked(seen.revoked)


def missing_revocations(seen: Seen, policy: ClusterPolicy) -> frozenset[str]:
    """Return the revocations that ``policy`` neither signs nor takes back: objects in the API must say them still."""
    return seen.revoked - frozenset(policy.revoked) - frozenset(policy.reinstated)


def require_revocations(missing: frozenset[str], live: Iterable[str]) -> None:
    """Raise POLICY_ROLLED_BACK unless each of ``missing`` is among the keys that the API's objects revoke."""
    lost = sorted(missing - frozenset(live))
    if lost:
        shown = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
        raise rolled_back(f"the revocation of {shown}, which was seen before, got none")


def adopt(known: Iterable[Seen], policy: ClusterPolicy) -> Seen:
    """Return what is known once the site has given ``policy`` (verified) anew, whatever state the record was in.

    ``known`` is all that is left of earlier records: the policy may not be older than them and must sign their
    revocations. Raises POLICY_ROLLED_BACK.
    """
    wanted = Seen.of(policy)
    for one in known:
        follow(one, policy)
        require_revocations(missing_revocations(one, policy), ())
    return wanted


def rolled_back(expected_and_got: str) -> PolicyError:
    """Return the one error for a past that comes back."""
    return PolicyError(f"expected {expected_and_got}", reason=Reason.POLICY_ROLLED_BACK)
