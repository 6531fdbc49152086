# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side of a rotation of the master secret (ADR 0042): what is left of it, and what of that is the site's.

The site has a new version first and forgets the old one last, each by one write of one encrypted file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.files import write_atomic
from ..errors import SystemFault
from ..keyservice.master import generate_master_secret
from ..reasons import Reason
from ..rotation.master_secret import FoundVersions, MasterPhase, PlaneVersions, plan_rotation
from . import secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.host import Random
    from ..rotation.master_secret import MasterPlan
    from .layout import Site
    from .secrets import Vault

OWN_PHASES = (MasterPhase.MAKE, MasterPhase.FORGET)
"""The phases that happen in the site alone."""


def found_versions(
    site: Sequence[str], said: Sequence[Mapping[str, Any]], *, nodes: Sequence[str], control_planes: Sequence[str]
) -> FoundVersions:
    """Return what `master_secret_versions_info` said on each node, beside the versions of the site.

    ``nodes`` and ``control_planes`` are all that the cluster has. Raises OPTION_INVALID.
    """
    try:
        planes = [
            PlaneVersions(
                name=str(one["node"]), names=tuple(map(str, one["plane"]["names"])), taken=one["plane"]["taken"] is True
            )
            for one in said
            if one["plane"] is not None and one["node"] in control_planes
        ]
        disks = {str(one["node"]): one["disk"] if one["disk"] is None else str(one["disk"]) for one in said}
    except (KeyError, TypeError) as error:
        raise SystemFault(
            "expected results of the module master_secret_versions_info in found, got something else",
            reason=Reason.OPTION_INVALID,
        ) from error
    return FoundVersions(
        site=tuple(site), planes=planes, members=frozenset(control_planes), disks=disks, nodes=frozenset(nodes)
    )


def plan_in_site(site: Site, vault: Vault, *, found: Mapping[str, Any], old: str) -> tuple[tuple[str, ...], MasterPlan]:
    """Return the names of the site's versions, and what is left; ``found``: said, nodes and control_planes."""
    names = secrets.load(site, vault).ring.names
    return names, plan_rotation(found_versions(names, **found), old=old)


def apply_in_site(site: Site, vault: Vault, plan: MasterPlan, *, random: Random) -> bool:
    """Do the first phase of ``plan`` where it is the site's own, and return whether it was.

    ``make``: a new version beside the one in force. ``forget``: the successor alone. Nothing else ever changes the
    site's file, and it changes as a whole.
    """
    if plan.phases[:1] not in [(one,) for one in OWN_PHASES]:
        return False
    ring = secrets.load(site, vault).ring
    if plan.phases[0] is MasterPhase.MAKE:
        ring = ring.with_successor(generate_master_secret(random))
    else:
        ring = ring.ordered((plan.successor,))
    write_atomic(site.master_secret, vault.encrypt(ring.to_json()))
    return True
