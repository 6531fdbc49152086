#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cilium_values
short_description: Write values for Cilium's Helm chart that fit the cluster
version_added: 0.1.0
description:
  - Writes a values file for Cilium's chart that follows from the cluster's variables, and refuses what contradicts
    them.
  - Neither the chart nor Helm is run, and no cluster is asked. The file is for C(helm install --values), or for
    whatever makes the manifest of the network. Cilium itself was never tried with it.
  - Names and types are checked against a table of the keys that are written here and of those that a site has reason to
    change with them; they were compared with the schema of a chart of about 1.17. That is not the chart's whole schema;
    put other keys into a second values file, which is not checked here.
  - Pods are encrypted between nodes with WireGuard, no container of the agent may load kernel modules or is privileged,
    none mounts a file system on the host, and Hubble is off, unless O(values) says something else where it may.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  path:
    description:
      - Where to write the file. Its directory exists.
      - A file there that was not written by this module is left alone and refused with V(CILIUM_FILE_FOREIGN).
    type: path
    required: true
  cluster_name:
    description: Name of the cluster. Where it has more than 32 characters, C(cluster.name) in O(values) has to name it.
    type: str
    required: true
  api_endpoint:
    description: Where everybody reaches the Kubernetes API, C(host:port).
    type: str
    required: true
  api_extra_sans:
    description: Further names and addresses in the certificate of the API server.
    type: list
    elements: str
    default: []
  api_proxy:
    description: Whether each worker has a port of its own that leads to the API.
    type: bool
    default: false
  api_proxy_port:
    description: That port on 127.0.0.1.
    type: int
    default: 6444
  pod_subnet:
    description: Addresses of Pods, one network.
    type: str
    default: 10.244.0.0/16
  service_subnet:
    description: Addresses of Services, one network.
    type: str
    default: 10.96.0.0/16
  kube_proxy:
    description: Whether the cluster has kube-proxy. Cilium replaces it exactly where there is none.
    type: bool
    default: true
  cni_bin_dir:
    description: Where containerd of the nodes looks for CNI plugins.
    type: path
    default: /usr/lib/cni
  nodes:
    description: How many machines the inventory names. With one of them there is one operator, else two.
    type: int
    required: true
  values:
    description:
      - What the site wants otherwise, in the form of the chart's values.
      - An unknown key, a value that its key may not hold, and a value that contradicts the other options fail with
        V(CILIUM_VALUES_INVALID), which names each of them. Nothing is
        written then.
      - C(k8sServiceHost) may be V(127.0.0.1) where O(api_proxy) is on, O(api_proxy_port) is 6443, where control planes
        themselves listen, and O(api_extra_sans) holds it. The chart knows one address for all nodes and no other name
        for TLS.
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
  description: The file.
  returned: success
  type: str
  sample: /srv/sites/prod/cilium-values.yaml
values:
  description: What it holds, in check mode what it would hold.
  returned: success
  type: dict
  sample: {kubeProxyReplacement: true, k8sServiceHost: api.prod.example, k8sServicePort: 6443}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.cilium_values import run_values
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

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
        "cni_bin_dir": {"type": "path", "default": "/usr/lib/cni"},
        "nodes": {"type": "int", "required": True},
        "values": {"type": "dict", "default": {}},
    },
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_values, libraries=("yaml",))


if __name__ == "__main__":
    main()
