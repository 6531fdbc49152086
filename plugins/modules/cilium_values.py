#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cilium_values
short_description: Write values for Cilium's Helm chart that fit the cluster
version_added: 0.2.0
description:
  - Writes a values file for Cilium's chart from the variables of the cluster. Values that contradict these variables
    are refused.
  - The module runs neither Helm nor the chart, and connects to no cluster. The file is for C(helm install --values), or
    for a tool that renders the manifest of the network. It was not tested with Cilium itself.
  - Names and types are checked against a table. The table contains the keys that are written here and the keys that a
    site often changes with them. It was compared with the schema of a chart of about 1.17, and is not the whole schema
    of the chart. Put other keys into a second values file, which is not checked here.
  - Pods are encrypted between nodes with WireGuard, and Hubble is off. No container of the agent may load kernel
    modules, is privileged or mounts a file system on the host. O(values) can change those of these settings that may be
    changed.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  path:
    description:
      - Path of the values file. Its directory must exist.
      - The module fails with V(CILIUM_FILE_FOREIGN) if the file exists and was not written by this module.
    type: path
    required: true
  cluster_name:
    description: Name of the cluster. If it has more than 32 characters, C(cluster.name) in O(values) is required.
    type: str
    required: true
  api_endpoint:
    description: Address of the Kubernetes API for nodes and admins, C(host:port).
    type: str
    required: true
  api_extra_sans:
    description: Further names and addresses in the certificate of the API server.
    type: list
    elements: str
    default: []
  api_proxy:
    description: If true, each worker has a local port that forwards to the API.
    type: bool
    default: false
  api_proxy_port:
    description: The port of O(api_proxy) on 127.0.0.1.
    type: int
    default: 6444
  pod_subnet:
    description: Network of Pods, in CIDR notation.
    type: str
    default: 10.244.0.0/16
  service_subnet:
    description: Network of Services, in CIDR notation.
    type: str
    default: 10.96.0.0/16
  kube_proxy:
    description: Whether the cluster has kube-proxy. If false, Cilium replaces it.
    type: bool
    default: true
  cni_bin_dir:
    description: Directory in which containerd of the nodes searches CNI plugins.
    type: path
    default: /opt/cni/bin
  nodes:
    description: Number of machines in the inventory. With one machine there is one operator, else there are two.
    type: int
    required: true
  values:
    description:
      - Values of the site that differ from the defaults of this module, in the form of the chart's values.
      - The module fails with V(CILIUM_VALUES_INVALID), and writes nothing, for an unknown key, a value that its key
        must not have, or a value that contradicts the other options. The message names each of them.
      - C(k8sServiceHost) may be V(127.0.0.1) if O(api_proxy) is true, O(api_proxy_port) is 6443 (the port on which
        control planes themselves listen), and O(api_extra_sans) contains V(127.0.0.1). The chart has one address for
        all nodes, and no separate name for TLS.
    type: dict
    default: {}
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Write the values for a cluster without kube-proxy
  attested.kubernetes.cilium_values:
    path: /srv/sites/prod/cilium-values.yaml
    cluster_name: prod
    api_endpoint: api.prod.example:6443
    kube_proxy: false
    nodes: 6

- name: Write the values with addresses from a pool of Cilium
  attested.kubernetes.cilium_values:
    path: /srv/sites/prod/cilium-values.yaml
    cluster_name: prod
    api_endpoint: api.prod.example:6443
    kube_proxy: false
    nodes: 6
    values:
      ipam:
        mode: cluster-pool
        operator:
          clusterPoolIPv4MaskSize: 25

- name: Write the values for the API proxy of each worker
  attested.kubernetes.cilium_values:
    path: /srv/sites/prod/cilium-values.yaml
    cluster_name: prod
    api_endpoint: api.prod.example:6443
    api_proxy: true
    api_proxy_port: 6443
    api_extra_sans: [127.0.0.1]
    kube_proxy: false
    nodes: 6
    values:
      k8sServiceHost: 127.0.0.1
      k8sServicePort: 6443
"""

RETURN = r"""
path:
  description: Path of the values file.
  returned: success
  type: str
  sample: /srv/sites/prod/cilium-values.yaml
values:
  description: Content of the file. In check mode, the content that would be written.
  returned: success
  type: dict
  sample: {kubeProxyReplacement: true, k8sServiceHost: api.prod.example, k8sServicePort: 6443}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cilium_values import run_values

SPEC = ArgumentSpec(
    options={
        "path": {"type": "path", "required": True},
        "cluster_name": {"type": "str", "required": True},
        "api_endpoint": {"type": "str", "required": True},
        "api_extra_sans": {"type": "list", "elements": "str", "default": []},
        "api_proxy": {"type": "bool", "default": False},
        "api_proxy_port": {"type": "int", "default": 6444},
        "pod_subnet": {"type": "str", "default": "10.244.0.0/16"},
        "service_subnet": {"type": "str", "default": "10.96.0.0/16"},
        "kube_proxy": {"type": "bool", "default": True},
        "cni_bin_dir": {"type": "path", "default": "/opt/cni/bin"},
        "nodes": {"type": "int", "required": True},
        "values": {"type": "dict", "default": {}},
    },
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_values, libraries=("yaml",))


if __name__ == "__main__":
    main()
