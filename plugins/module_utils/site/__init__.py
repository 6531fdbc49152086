# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side: one directory is one cluster, its public facts, its secrets and its identities."""

from __future__ import annotations

from .cluster_file import ClusterFile, parse_salt, read_cluster_file
from .layout import Site
from .secrets import Origin, SecretsPlan, Vault

__all__ = ["ClusterFile", "Origin", "SecretsPlan", "Site", "Vault", "parse_salt", "read_cluster_file"]
