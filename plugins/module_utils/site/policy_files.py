# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy of a site: the active profiles of ``policy/`` and the identities of the inventory, as one `SitePolicy`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..policy import SitePolicy, parse_documents, render_document, render_identity, render_profile
from ..reasons import Reason
from ..system import read_bytes
from .identities import enrolled_identities

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..policy import MeasurementProfile, NodeIdentity
    from .identities import InventoryNode

_LIMIT = 4 << 20


def load_profiles(directory: str | Path, active: Sequence[str]) -> tuple[MeasurementProfile, ...]:
    """Return the profiles that ``active`` names, from the manifests in ``directory``.

    Raises POLICY_EMPTY where none is named, PROFILE_UNKNOWN for a name without manifest, MANIFEST_INVALID.
    """
    if not active:
        raise PolicyError("expected at least one name in attested_profiles, found none", reason=Reason.POLICY_EMPTY)
    texts = [(path.name, _text(path)) for path in sorted(Path(directory).glob("*.yml"))]
    found = {profile.name: profile for profile in parse_documents(texts).profiles}
    missing = [name for name in active if name not in found]
    if missing:
        raise PolicyError(
            f"expected the profiles {', '.join(missing)} in {directory}, found {', '.join(sorted(found)) or 'none'}",
            reason=Reason.PROFILE_UNKNOWN,
        )
    return tuple(found[name] for name in active)


def site_policy(profiles: Iterable[MeasurementProfile], nodes: Iterable[InventoryNode]) -> SitePolicy:
    """Return the policy that a site says, before and beside a cluster."""
    return SitePolicy(profiles=profiles, identities=enrolled_identities(nodes))


def render_objects(profiles: Iterable[MeasurementProfile], identities: Iterable[NodeIdentity]) -> str:
    """Return the site's objects as one YAML stream, in the very form that is applied to the cluster."""
    documents = [*map(render_profile, profiles), *map(render_identity, identities)]
    return "".join(map(render_document, documents))


def _text(path: Path) -> str:
    try:
        return read_bytes(path, limit=_LIMIT).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"expected YAML in UTF-8 in {path}, got other bytes", reason=Reason.MANIFEST_INVALID
        ) from error
