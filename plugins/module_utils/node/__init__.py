# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node: its configuration, its journal, the order of its steps, and the programs that run on it. Private."""

from __future__ import annotations

from .config import EventLogPaths, NodeConfig, load_node_config, parse_node_config
from .journal import NodeJournal, NodePhase, NodeState

__all__ = [
    "EventLogPaths",
    "NodeConfig",
    "NodeJournal",
    "NodePhase",
    "NodeState",
    "load_node_config",
    "parse_node_config",
]
