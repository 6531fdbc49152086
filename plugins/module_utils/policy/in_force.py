# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy in force: the seam behind which profiles and identities come from the site or from the live API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .identity import find_identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .identity import NodeIdentity
    from .profile import MeasurementProfile


class PolicyInForce(Protocol):
    """What a verification asks of the policy; each answer is as of now, and a failed read raises."""

    def identity_for(self, ek_sha256: str) -> NodeIdentity:
        """Return the approved identity of an endorsement key; raises as `find_identity` does."""

    def profiles(self) -> tuple[MeasurementProfile, ...]:
        """Return every profile in force."""

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote: those of all profiles and the node lock's, ascending."""


class SitePolicy:
    """The policy of a site directory: what its manifests say, before and beside a cluster."""

    def __init__(
        self,
        *,
        profiles: Iterable[MeasurementProfile],
        identities: Iterable[NodeIdentity],
        lock_register: int = 15,
    ) -> None:
        """Keep both; ``lock_register`` is quoted beside the profiles' registers."""
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


def register_selection(profiles: Iterable[MeasurementProfile], *, lock_register: int) -> tuple[int, ...]:
    """Return the registers that ``profiles`` demand and the node lock's, ascending, each once."""
    return tuple(sorted({lock_register, *(pcr for profile in profiles for pcr in profile.demanded_registers)}))
