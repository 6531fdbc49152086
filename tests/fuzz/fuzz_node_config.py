# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/etc/attested/node.yml."""

from __future__ import annotations

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import parse_node_config
from ansible_collections.attested.kubernetes.tests.attacks.test_s39_discovery_without_pin import NODE_CONFIG


def seeds() -> list[bytes]:
    return [yaml.safe_dump(NODE_CONFIG).encode()]


def one_input(data: bytes) -> None:
    parse_node_config(data)
