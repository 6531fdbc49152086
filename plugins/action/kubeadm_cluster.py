# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``kubeadm_cluster``: if Ansible runs on the node itself, the installed module; it has keys."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_action import ProcessAction


class ActionModule(ProcessAction):
    """See the module."""
