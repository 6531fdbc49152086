# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node on its way into the cluster: its configuration, its journal, the order of its steps. Private."""

from __future__ import annotations

from .journal import NodeJournal, NodePhase, NodeState
from .node_config import EventLogPaths, NodeConfig, load_node_config, parse_node_config

__all__ = [
    "EventLogPaths",
    "NodeConfig",
    "NodeJournal",
    "NodePhase",
    "NodeState",
    "load_node_config",
    "parse_node_config",
]
