# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to etcd; in sync with `etcd_spec` in module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of every module that connects to the etcd member of a control plane."""

    DOCUMENTATION = r"""
options:
  endpoint:
    description: URL of the member of this control plane.
    type: str
    default: https://127.0.0.1:2379
  certificates:
    description:
      - Directory with C(ca.crt), C(healthcheck-client.crt) and C(healthcheck-client.key), which kubeadm creates on each
        control plane.
    type: path
    default: /etc/kubernetes/pki/etcd
"""
