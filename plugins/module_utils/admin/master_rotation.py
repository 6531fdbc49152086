# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's part of a rotation of the master secret (ADR 0042).

The site gets the new version first and removes the old one last, each by one write of one encrypted file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.files import write_atomic
from ..keyservice.master import generate_master_secret
from ..rotation.master_secret import MasterPhase
from . import secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Random
    from .layout import Site
    from .secrets import Vault

OWN_PHASES = (MasterPhase.MAKE.value, MasterPhase.FORGET.value)
"""The phases that change only the site."""


def apply_in_site(site: Site, vault: Vault, plan: Mapping[str, Any], *, random: Random) -> bool:
    """Do the first phase of ``plan`` (of `rotation.values`) if it is the site's own, and return whether it was.

    ``make`` adds a new version to the one in force; ``forget`` keeps only the successor. Once the site's file exists,
    no other code changes it. It is written atomically.
    """
    if not is_own(plan):
        return False
    ring = secrets.load(site, vault).ring
    if plan["phases"][0] == MasterPhase.MAKE.value:
        ring = ring.with_successor(generate_master_secret(random))
    else:
        ring = ring.ordered((plan["successor"],))
    write_atomic(site.master_secret, vault.encrypt(ring.to_json()))
    return True


def is_own(plan: Mapping[str, Any]) -> bool:
    """Return whether the first phase of a plan is the site's own."""
    return any(phase in OWN_PHASES for phase in plan["phases"][:1])
