# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task on the node itself, in the process of the playbook or by its module: helpers for tests of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HERE: Mapping[str, str] = {}
BY_MODULE: Mapping[str, str] = {"ATTESTED_WAY": "by the module"}
"""A task with its own environment runs as a module (``NodeAction.runs_here``)."""


def write_node_config(path: Path) -> None:
    """Write the configuration of a node without a TPM, whose services are not used."""
    certificate = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    config = {
        "version": 1,
        "name": "w-1",
        "cluster_name": "prod",
        "cluster_id": "ab" * 32,
        "endpoints": ["192.0.2.11:9090"],
        "join_ca": certificate,
        "tcti": "device:/no/such/tpm",
        "logs": {"firmware": "/none", "userspace": "/none"},
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
