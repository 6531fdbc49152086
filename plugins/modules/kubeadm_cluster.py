#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeadm_cluster
short_description: Make this machine the first control plane of a cluster
version_added: 0.1.0
description:
  - Runs C(kubeadm init) phase by phase, without any bootstrap token. The phases that would make one never run, the API
    server refuses such tokens, and no binding approves certificates automatically.
  - Completed phases are not repeated. After a failure or a kill the next run continues where the last one stopped.
  - Needs the machine locked to its cluster (V(NODELOCK_NOT_HELD)) and installed by C(attested.kubernetes.prepare).
  - A phase that fails or hangs ends with V(KUBEADM_PHASE_FAILED), and a failed one shows the last lines of kubeadm.
  - Secrets are encrypted in etcd with a key that is made once, in C(/etc/kubernetes/attested/encryption.yaml), and
    never overwritten. A file there that would not encrypt is refused with V(ENCRYPTION_MALFORMED); one that is gone
    while etcd has data fails with V(ENCRYPTION_KEY_LOST).
  - Static pods name their images by the digests of the bundle that the machine was prepared with. A list of them that
    cannot be read fails with V(IMAGE_PINS_MALFORMED).
  - Of a cluster that is complete nothing is changed; other options than those it was made with give a warning, and so
    does one whose Secrets lie in clear because it was made before they were encrypted.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  node_name:
    description: Name of the node.
    type: str
    required: true
  kubernetes_version:
    description:
      - Minor (V(1.35)) or full version (V(1.35.4)) of Kubernetes.
      - The installed kubeadm must be of it, or the module fails with V(RELEASE_NOT_PREPARED).
    type: str
    required: true
  cluster_name:
    description: Name of the cluster.
    type: str
    required: true
  api_endpoint:
    description: Name and port by which nodes and admins reach the API server.
    type: str
    required: true
  pod_subnet:
    description: Network of the pods, in CIDR notation.
    type: str
    default: 10.244.0.0/16
  service_subnet:
    description: Network of the services, in CIDR notation.
    type: str
    default: 10.96.0.0/16
  dns_domain:
    description: Domain of the services.
    type: str
    default: cluster.local
  extra_sans:
    description: Further names and addresses of the API server.
    type: list
    elements: str
    default: []
  unmanaged_conntrack:
    description:
      - Keep kube-proxy from setting the limits of connection tracking.
      - For test beds whose nodes may not change them.
    type: bool
    default: false
  kube_proxy:
    description:
      - Install kube-proxy. Without it the network of the Pods has to bring Services itself.
      - Counts when the cluster is made.
    type: bool
    default: true
  kubelet_serving_certificates:
    description:
      - Let kubelets ask the cluster for the certificate that they serve with, which the key service decides about, and
        let API servers demand one. Without it these certificates are self-signed and not verified.
      - Certificates that the controller manager signs are good for 72 hours then, those of other requests too.
      - Counts when the cluster is made, for all of its nodes.
    type: bool
    default: true
  pod_security:
    description:
      - What Pods are held to where their namespace has no label of its own, a level of Kubernetes' Pod Security
        Standards. V(privileged) holds them to nothing.
      - Of a cluster that is complete M(attested.kubernetes.control_plane_settings) changes it.
    type: str
    choices: [baseline, restricted, privileged]
    default: baseline
  exempt_namespaces:
    description: Namespaces whose Pods are held to nothing, beside kube-system.
    type: list
    elements: str
    default: []
  until:
    description: Stop after this phase; without it all phases run.
    type: str
    choices:
      - preflight
      - certs
      - kubeconfig
      - kubelet-credential
      - etcd
      - control-plane
      - kubelet-start
      - wait-control-plane
      - upload-config
      - mark-control-plane
      - kubelet-finalize
      - coredns
      - kube-proxy
      - super-admin
  admin_certificate_request:
    description:
      - Certificate request (PEM) of an admin, whose key never leaves the admin's machine.
      - Of the request only the common name counts; one that begins with V(system:) fails with V(ADMIN_REQUEST_INVALID).
    type: str
  admin_certificate_hours:
    description: How long the admin's certificate is good.
    type: int
    default: 24
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubeadm
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details:
      - With O(admin_certificate_request) each run signs a new certificate, which changes nothing on the machine.
"""

EXAMPLES = r"""
- name: Initialize the first control plane
  attested.kubernetes.kubeadm_cluster:
    node_name: cp-1
    node_ip: 10.0.0.11
    kubernetes_version: 1.35.4
    cluster_name: prod
    api_endpoint: api.prod.example:6443

- name: Create only the certificates
  attested.kubernetes.kubeadm_cluster:
    node_name: cp-1
    node_ip: 10.0.0.11
    kubernetes_version: 1.35.4
    cluster_name: prod
    api_endpoint: api.prod.example:6443
    until: certs

- name: Sign a client certificate for an admin of a running cluster
  attested.kubernetes.kubeadm_cluster:
    node_name: cp-1
    node_ip: 10.0.0.11
    kubernetes_version: 1.35.4
    cluster_name: prod
    api_endpoint: api.prod.example:6443
    admin_certificate_request: "{{ lookup('ansible.builtin.file', 'alice.csr') }}"
    admin_certificate_hours: 8
  register: cluster
"""

RETURN = r"""
complete:
  description: Whether all phases are done.
  returned: success
  type: bool
  sample: true
kubernetes_version:
  description: The full version of the installed kubeadm.
  returned: success
  type: str
  sample: 1.35.4
steps:
  description: What was done, in order; empty when nothing was.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Short name of the step.
      type: str
    title:
      description: What a person reads.
      type: str
    seconds:
      description: How long it took.
      type: float
    changed:
      description: Whether it changed the machine.
      type: bool
  sample: [{name: certs, title: "Make the cluster's certificates", seconds: 1.2, changed: true}]
cluster_ca:
  description: Certificate of the cluster's CA, PEM.
  returned: when complete
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
admin_certificate:
  description: The admin's client certificate, PEM.
  returned: when complete and a request was given
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubeadm_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import run_cluster
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.pod_security import BASELINE, LEVELS

SPEC = ArgumentSpec(
    options={
        "node_name": {"type": "str", "required": True},
        "kubernetes_version": {"type": "str", "required": True},
        "cluster_name": {"type": "str", "required": True},
        "api_endpoint": {"type": "str", "required": True},
        "pod_subnet": {"type": "str", "default": "10.244.0.0/16"},
        "service_subnet": {"type": "str", "default": "10.96.0.0/16"},
        "dns_domain": {"type": "str", "default": "cluster.local"},
        "extra_sans": {"type": "list", "elements": "str", "default": []},
        "unmanaged_conntrack": {"type": "bool", "default": False},
        "kube_proxy": {"type": "bool", "default": True},
        "kubelet_serving_certificates": {"type": "bool", "default": True},
        "pod_security": {"type": "str", "choices": list(LEVELS), "default": BASELINE},
        "exempt_namespaces": {"type": "list", "elements": "str", "default": []},
        "until": {"type": "str", "choices": [phase.name for phase in INIT_PHASES]},
        "admin_certificate_request": {"type": "str"},
        "admin_certificate_hours": {"type": "int", "default": 24},
    }
).merged(kubeadm_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_cluster, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
