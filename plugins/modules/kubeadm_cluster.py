#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeadm_cluster
short_description: Initialize this machine as the first control plane of a cluster
version_added: 0.2.0
description:
  - Runs C(kubeadm init) phase by phase, without a bootstrap token. Phases that would create a token never run, the API
    server refuses bootstrap tokens, and no binding approves certificates automatically.
  - Completed phases are not repeated. After a failure or a kill the next run continues where the last run stopped.
  - The machine must be locked to its cluster (V(NODELOCK_NOT_HELD)) and prepared by C(attested.kubernetes.prepare).
  - The module fails with V(KUBEADM_PHASE_FAILED) if a phase fails or hangs. The message contains the last lines of
    kubeadm if the phase failed.
  - Secrets are encrypted in etcd. The key is created once, in C(/etc/kubernetes/attested/encryption.yaml), and never
    overwritten. The module fails with V(ENCRYPTION_MALFORMED) if the file would not encrypt, and with
    V(ENCRYPTION_KEY_LOST) if the file is missing while etcd has data.
  - Static pods name their images by the digests of the bundle that the machine was prepared with. The module fails with
    V(IMAGE_PINS_MALFORMED) if the list of digests cannot be read.
  - A complete cluster is not changed. The module warns if the options differ from those of the cluster's
    initialization. It also warns if Secrets are in clear because the cluster was initialized before Secrets were
    encrypted.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  node_name:
    description: Name of the node.
    type: str
    required: true
  kubernetes_version:
    description:
      - Minor version (V(1.35)) or full version (V(1.35.4)) of Kubernetes.
      - The module fails with V(RELEASE_NOT_PREPARED) if the installed kubeadm has another version.
    type: str
    required: true
  cluster_name:
    description: Name of the cluster.
    type: str
    required: true
  api_endpoint:
    description: Name and port at which nodes and admins reach the API server.
    type: str
    required: true
  pod_subnet:
    description:
      - Network of the pods, in CIDR notation; for IPv4 and IPv6 one of each with a comma between them.
      - The first one has the address family of O(node_ip). O(service_subnet) has the same families in the same order.
    type: str
    default: 10.244.0.0/16
  service_subnet:
    description: Network of the services, in CIDR notation, or one of each address family as in O(pod_subnet).
    type: str
    default: 10.96.0.0/16
  dns_domain:
    description: Domain of the services.
    type: str
    default: cluster.local
  extra_sans:
    description: Additional names and addresses in the API server's certificate.
    type: list
    elements: str
    default: []
  unmanaged_conntrack:
    description:
      - If true, kube-proxy does not set the limits of connection tracking.
      - For test beds whose nodes must not change these limits.
    type: bool
    default: false
  kube_proxy:
    description:
      - If true, kube-proxy is installed. Otherwise the network plugin of the Pods must implement Services.
      - Used only when the cluster is initialized.
    type: bool
    default: true
  kubelet_serving_certificates:
    description:
      - If true, kubelets request their serving certificates from the cluster, the key service decides about these
        requests, and API servers require such a certificate. If false, serving certificates are self-signed and not
        verified.
      - If true, all certificates that the controller manager signs are valid for 72 hours, including those of other
        requests.
      - Used only when the cluster is initialized, for all nodes of the cluster.
    type: bool
    default: true
  pod_security:
    description:
      - Level of Kubernetes' Pod Security Standards that is enforced on Pods in namespaces without a label of their own.
        V(privileged) enforces nothing.
      - In a complete cluster, change the level with M(attested.kubernetes.control_plane_settings).
    type: str
    choices: [baseline, restricted, privileged]
    default: baseline
  exempt_namespaces:
    description: Namespaces in which nothing is enforced on Pods, in addition to kube-system.
    type: list
    elements: str
    default: []
  until:
    description: Stop after this phase. If unset, all phases run.
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
      - Certificate request (PEM) of an admin. Its private key never leaves the admin's machine.
      - Only the public key and the common name are taken from the request. The module fails with
        V(ADMIN_REQUEST_INVALID) if the name begins with V(system:).
    type: str
  admin_certificate_hours:
    description: Lifetime of the admin's certificate in hours.
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
  description: Steps that were run, in order. Empty if nothing was done.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Short name of the step.
      type: str
    title:
      description: Description of the step.
      type: str
    seconds:
      description: Duration of the step in seconds.
      type: float
    changed:
      description: Whether the step changed the machine.
      type: bool
  sample: [{name: certs, title: "Make the cluster's certificates", seconds: 1.2, changed: true}]
cluster_ca:
  description: Certificate of the cluster's CA, PEM.
  returned: when complete
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
admin_certificate:
  description: The admin's client certificate, PEM.
  returned: when complete and with O(admin_certificate_request)
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubeadm_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import run_cluster
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import BASELINE, LEVELS

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
