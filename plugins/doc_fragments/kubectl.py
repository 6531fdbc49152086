# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to the Kubernetes API; in sync with `kubectl_spec` in module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The option of every module that uses the kubectl of a control plane."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: Path of a kubeconfig on this machine with the required rights.
    type: path
    default: /etc/kubernetes/admin.conf
"""
