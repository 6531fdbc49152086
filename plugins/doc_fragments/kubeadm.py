# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a node for kubeadm; in sync with `kubeadm_spec` in module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the modules that run kubeadm."""

    DOCUMENTATION = r"""
options:
  node_ip:
    description:
      - Address at which the nodes of the cluster reach this machine.
      - The module fails with V(OPTION_INVALID) if it is not an IP address.
    type: str
    required: true
  second_node_ip:
    description:
      - Address of this machine in the other address family, in a cluster with IPv4 and IPv6.
      - The module fails with V(OPTION_INVALID) if it is not an address of the other family than O(node_ip).
    type: str
    default: ""
  cri_socket:
    description: Socket of the container runtime.
    type: str
    default: unix:///run/containerd/containerd.sock
  ignore_preflight_errors:
    description:
      - Names of preflight checks of kubeadm whose errors are treated as warnings.
      - The module fails with V(OPTION_INVALID) for V(all), because it would hide unexpected errors.
    type: list
    elements: str
    default: []
  allow_cgroup_v1:
    description:
      - If true, the kubelet runs although the host has control groups of version 1 only.
      - For test beds. Kubernetes refuses such hosts by default since 1.35.
    type: bool
    default: false
"""
