# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key service's figures: it has no network listener, so the join service asks for them and shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kube import IDENTITIES, PROFILES
from ..serving import counted

if TYPE_CHECKING:
    from ..audit import AuditTrail
    from ..kube import NearPolicy, StandingWatcher
    from ..serving import Log, Metrics, Reloader
    from .config import KeyServiceConfig


def key_metrics(
    log: Log,
    *,
    near: NearPolicy,
    audit: AuditTrail,
    reloader: Reloader[KeyServiceConfig],
    standings: StandingWatcher,
) -> Metrics | None:
    """Return figures that count the lines of ``log`` and show the state of the rest; None without the library."""
    metrics = counted("key", log)
    if metrics is None:
        return None
    metrics.gauge("config_generation", "Readings of the configuration and its roots.", lambda: reloader.generation)
    metrics.gauge("audit_sequence", "Number of the last audit record.", lambda: audit.head().sequence)
    metrics.gauge("identities", "Identities that are followed.", lambda: len(near.caches[IDENTITIES]))
    metrics.gauge("profiles", "Profiles that are followed.", lambda: len(near.caches[PROFILES]))
    metrics.gauge("nodes_not_attested", "Nodes whose evidence was refused or is overdue.", lambda: standings.bad)
    return metrics
