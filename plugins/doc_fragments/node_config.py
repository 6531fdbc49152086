# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of the node's configuration; in sync with `node_config_spec` in module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The option of every module that works on a prepared node."""

    DOCUMENTATION = r"""
options:
  node_config:
    description:
      - Path of the node's configuration (name, endpoints, pins of the join CA, cluster id, TPM and log paths).
      - The playbook C(attested.kubernetes.prepare) writes this file. Do not edit it.
    type: path
    default: /etc/attested/node.yml
"""
