# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which certificates are due; pure.

A certificate is due from its window on, which ends when the certificate or its CA does, whatever comes first. What no
renewal makes last longer, because its CA ends first, is not renewed for that: the CA is to be replaced by a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from .table import ORDER

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from .leaf import Leaf

WINDOW = timedelta(days=60)
"""Two months of daily tries, and of time for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalPlan:
    """``due`` is renewed; ``ending`` are the CAs (file name, end) that a person has to replace."""

    due: tuple[Leaf, ...]
    ending: tuple[tuple[str, datetime], ...] = ()

    def __bool__(self) -> bool:
        """Say whether there is anything to renew."""
        return bool(self.due)

    @property
    def components(self) -> tuple[str, ...]:
        """What is renewed together and starts anew, in order."""
        return tuple(name for name in ORDER if self.of(name))

    def of(self, component: str) -> tuple[Leaf, ...]:
        """Return what is due of one component."""
        return tuple(leaf for leaf in self.due if leaf.certificate.component == component)

    def require_lasting(self) -> None:
        """Raise CONTROL_PLANE_CA_ENDS where a CA ends so soon that what it signs is of no use for long."""
        if self.ending:
            shown = ", ".join(f"{name} until {ends:%Y-%m-%dT%H:%M:%SZ}" for name, ends in self.ending)
            raise KubeadmError(
                f"expected CAs that are good beyond the renewal window, got {shown}",
                reason=Reason.CONTROL_PLANE_CA_ENDS,
            )


def window_of(leaf: Leaf) -> timedelta:
    """Return how long before its end a certificate is renewed: two months, a third of a shorter life."""
    return min(WINDOW, (leaf.ends - leaf.begins) / 3)


def renews(leaf: Leaf) -> datetime:
    """Return from when on a certificate is due."""
    return leaf.until - window_of(leaf)


def plan(
    leaves: Sequence[Leaf], *, now: datetime, at_once: bool = False, unfinished: Collection[str] = ()
) -> RenewalPlan:
    """Return what is to renew: what is due, or everything ``at_once``, and the components whose renewal was cut off.

    Raises CONTROL_PLANE_CERTIFICATE_EARLY where anything is not good yet: then the clock is wrong, and what it would
    sign would be wrong too.
    """
    _require_begun(leaves, now)
    due = tuple(leaf for leaf in leaves if at_once or leaf.certificate.component in unfinished or _is_due(leaf, now))
    ending = {
        leaf.certificate.authority.relative_to("etc/kubernetes/pki").as_posix(): leaf.authority_ends
        for leaf in leaves
        if leaf.authority_ends - window_of(leaf) <= now
    }
    return RenewalPlan(due=due, ending=tuple(sorted(ending.items())))


def first_to_end(leaves: Sequence[Leaf]) -> Leaf:
    """Return the certificate that is of use for the shortest time."""
    return min(leaves, key=lambda leaf: leaf.until)


def _is_due(leaf: Leaf, now: datetime) -> bool:
    return renews(leaf) <= now and leaf.ends < leaf.authority_ends


def _require_begun(leaves: Sequence[Leaf], now: datetime) -> None:
    early = [
        f"{leaf.certificate.name} from {begins:%Y-%m-%dT%H:%M:%SZ} on"
        for leaf in leaves
        if (begins := max(leaf.begins, leaf.authority_begins)) > now
    ]
    if early:
        raise KubeadmError(
            f"expected certificates that are good at {now:%Y-%m-%dT%H:%M:%SZ}, got {', '.join(early)}",
            reason=Reason.CONTROL_PLANE_CERTIFICATE_EARLY,
        )
