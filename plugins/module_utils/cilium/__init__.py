# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of Cilium's Helm chart that fit a cluster: written and checked here, never run. Private to the collection."""

from __future__ import annotations

from .contradictions import require_agreement
from .facts import Cluster, parse_cluster
from .file import run_values
from .schema import flatten, nest
from .values import complete, render

__all__ = ["Cluster", "complete", "flatten", "nest", "parse_cluster", "render", "require_agreement", "run_values"]
