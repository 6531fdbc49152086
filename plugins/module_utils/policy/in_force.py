# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy in force: one interface for profiles and identities from the site or from the live API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..errors import PolicyError
from ..reasons import Reason
from .identity import Role, find_identity, inherited_disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from .cluster import ClusterPolicy
    from .identity import NodeIdentity
    from .profile import MeasurementProfile


class PolicyInForce(Protocol):
    """The part of the policy that a verification needs; each call returns the current state, or raises."""

    def identity_for(self, ek_sha256: str) -> NodeIdentity:
        """Return the approved identity of an endorsement key; raises as `find_identity` does."""

    def profiles(self) -> tuple[MeasurementProfile, ...]:
        """Return every profile in force."""

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote: those of all profiles and the node lock's, ascending."""


class SitePolicy:
    """The policy of a site directory's manifests, for use before a cluster exists or without it."""

    def __init__(
        self,
        *,
        profiles: Iterable[MeasurementProfile],
        identities: Iterable[NodeIdentity],
        lock_register: int = 15,
    ) -> None:
        """Store profiles and identities; ``lock_register`` is quoted besides the profiles' registers."""
        self._profiles = tuple(profiles)
        self._identities = tuple(identities)
        self._lock_register = lock_register

    def identity_for(self, ek_sha256: str) -> NodeIdentity:
        """Return the approved identity of an endorsement key."""
        return find_identity(self._identities, ek_sha256)

    def profiles(self) -> tuple[MeasurementProfile, ...]:
        """Return the profiles of the site."""
        return self._profiles

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote, ascending."""
        return register_selection(self._profiles, lock_register=self._lock_register)


class CountingProfiles:
    """The profiles that count under one policy; made once for many machines.

    ``named`` count for every machine. ``selection`` are the registers to quote, ascending: those of all profiles that
    count for any machine, also by an exception that has ended, and ``lock_register``.
    """

    def __init__(
        self, policy: ClusterPolicy, profiles: Iterable[MeasurementProfile], *, lock_register: int = 15
    ) -> None:
        """Keep those of ``profiles`` that ``policy`` names, and those that an exception names."""
        found = tuple(profiles)
        excepted = {one.profile.name for one in policy.exceptions}
        self.policy = policy
        self.lock_register = lock_register
        self.named = tuple(one for one in found if policy.names_profile(one))
        self._excepted = tuple(one for one in found if one.name in excepted and not policy.names_profile(one))
        self.selection = register_selection((*self.named, *self._excepted), lock_register=lock_register)

    def for_machine(self, ek_sha256: str, *, now: datetime) -> tuple[MeasurementProfile, ...]:
        """Return the profiles that count now for the machine with this endorsement key."""
        excepted = (one for one in self._excepted if self.policy.excepted(one, ek_sha256, now=now))
        return (*self.named, *excepted)


class SignedPolicy(SitePolicy):
    """The cluster's objects that count for one machine under the signed policy; also a `PolicyInForce`.

    ``revoked`` are the known revocations from other sources than the policy.
    """

    def __init__(
        self,
        *,
        counting: CountingProfiles,
        revoked: frozenset[str],
        identities: Iterable[NodeIdentity],
        ek_sha256: str,
        now: datetime,
    ) -> None:
        """Store what counts for the machine with this endorsement key."""
        profiles = counting.for_machine(ek_sha256, now=now)
        super().__init__(profiles=profiles, identities=identities, lock_register=counting.lock_register)
        self._policy = counting.policy
        self._revoked = revoked | frozenset(self._policy.revoked)

    def identity_for(self, ek_sha256: str) -> NodeIdentity:
        """Return the approved identity of an endorsement key.

        1. The key was never revoked, whatever objects exist now. IDENTITY_REVOKED
        2. Exactly one approved identity has the key. IDENTITY_UNKNOWN, IDENTITY_REVOKED, IDENTITY_AMBIGUOUS,
           IDENTITY_PENDING, IDENTITY_REFUSED, EK_ALIAS_TAKEN
        3. The chip's other key was never revoked either. IDENTITY_REVOKED
        4. The signed policy names the identity if it is a control plane. IDENTITY_UNSIGNED
        """
        self._require_never_revoked((ek_sha256,))  # 1
        identity = super().identity_for(ek_sha256)  # 2
        self._require_never_revoked(identity.keys)  # 3
        self._require_signed(identity)  # 4
        return identity

    def inherited_disk(self, heir: NodeIdentity) -> str:
        """Return the disk id that ``heir`` inherits, or an empty string; raises as `identity.inherited_disk` does.

        Only a control plane that the signed policy names can inherit a control plane's disk. IDENTITY_UNSIGNED
        """
        self._require_signed(heir)
        return inherited_disk(self._identities, heir)

    def _require_signed(self, identity: NodeIdentity) -> None:
        if identity.role is Role.CONTROL_PLANE and not self._policy.names_control_plane(identity):
            raise PolicyError(
                f"expected the identity of the control plane {identity.node_name} in the signed policy, it is not",
                reason=Reason.IDENTITY_UNSIGNED,
            )

    def _require_never_revoked(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            if key in self._revoked:
                raise PolicyError(
                    f"expected an endorsement key that was never revoked, {key} was", reason=Reason.IDENTITY_REVOKED
                )


def register_selection(profiles: Iterable[MeasurementProfile], *, lock_register: int) -> tuple[int, ...]:
    """Return the registers that ``profiles`` demand and the node lock's, ascending, each once."""
    return tuple(sorted({lock_register, *(pcr for profile in profiles for pcr in profile.demanded_registers)}))
