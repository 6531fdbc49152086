#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_settings
short_description: Set arguments, authenticators, audit webhook and Pod security of a site on a control plane
version_added: 0.2.0
description:
  - Adds arguments to the API server, the controller manager, the scheduler and etcd of this control plane, and removes
    arguments that it added before. Control planes that join later, and upgrades, use the same arguments, because the
    ConfigMap C(kubeadm-config) contains them.
  - A program is restarted if its arguments change. If it is not healthy afterwards, its previous manifest is restored
    and the module fails with V(CONTROL_PLANE_COMPONENT_UNHEALTHY). Only one control plane of a cluster is changed at a
    time. If another control plane has the turn for five minutes, the module fails with V(CONTROL_PLANE_JOIN_BUSY).
  - Configures the API server to authenticate the tokens of other issuers, for example of OpenID Connect. The API server
    loads the file without a restart. If it refuses the authenticators, the previous file is restored and the module
    fails with V(CONFIG_INVALID).
  - Configures the API server to send its audit events to a webhook as well. The API server is restarted. If it is not
    healthy afterwards, the previous file and manifest are restored.
  - Control planes that join later get the authenticators and the webhook with their ticket.
  - Configures the API server to enforce a level of Kubernetes' Pod Security Standards, and to refuse the externalIPs of
    Services. A new cluster has these settings from its first start, and then nothing is changed. Otherwise the API
    server is restarted, and its other admission plugins are kept. If it is not healthy afterwards, the previous file
    and manifest are restored.
  - The module fails with V(ADMISSION_FOREIGN) if another program wrote the admission configuration, and with
    V(OPTION_INVALID) for a name that is not a valid namespace. It fails with V(CONTROL_PLANE_MANIFEST_MALFORMED) if a
    manifest was not written by C(kubeadm). The next run completes a killed run.
  - The module fails with V(CONFIG_INVALID), and changes nothing, for an argument that controls access to keys, nodes or
    admission. The same applies to an argument that C(kubeadm) or this collection sets.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  arguments:
    description:
      - Arguments by name, without leading dashes, for each of C(kube-apiserver), C(kube-controller-manager),
        C(kube-scheduler) and C(etcd). These are all arguments that the site adds. If unset, the arguments are not
        changed.
      - C(feature-gates) is a mapping of names to booleans. C(enable-admission-plugins) is added to the plugins of this
        collection.
    type: dict
  authenticators:
    description:
      - Entries of the field C(jwt) of an C(AuthenticationConfiguration) of C(apiserver.config.k8s.io/v1). These are all
        entries that the site adds. If unset, the entries are not changed.
      - Each gets rules by which a token is refused if its user or one of its groups begins with C(system:),
        C(attested:) or C(kubeadm:).
    type: list
    elements: dict
  audit_webhook:
    description:
      - C(url) of a webhook that receives audit events by HTTPS, in addition to the log file. C(certificate_authority)
        is the text of the CA's certificates in PEM, if the system's CAs did not sign the webhook's certificate. If
        unset, the webhook is not changed. An empty mapping removes it.
      - Bodies of Secrets, ConfigMaps and tokens are not in the events.
    type: dict
  pod_security:
    description:
      - Level that the API server enforces on Pods in namespaces without a label of their own. If unset, the level is
        not changed.
      - V(privileged) enforces nothing. A user who may create a Pod then controls the machine that the Pod runs on.
    type: str
    choices: [baseline, restricted, privileged]
  exempt_namespaces:
    description:
      - Namespaces in which nothing is enforced on Pods, in addition to kube-system. A user who may create Pods there
        controls every node. Used with O(pod_security).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Keep audit logs for longer and enable a feature gate
  attested.kubernetes.control_plane_settings:
    arguments:
      kube-apiserver:
        audit-log-maxage: 90
        feature-gates: {ImageVolume: true}
      kube-controller-manager:
        node-monitor-grace-period: 60s
      etcd:
        quota-backend-bytes: 8589934592

- name: Authenticate the users of an OpenID Connect issuer
  attested.kubernetes.control_plane_settings:
    authenticators:
      - issuer:
          url: https://login.example
          audiences: [kubernetes]
        claimMappings:
          username: {claim: email, prefix: "oidc:"}
          groups: {claim: groups, prefix: "oidc:"}

- name: Send audit events to a collector
  attested.kubernetes.control_plane_settings:
    audit_webhook:
      url: https://audit.example/kubernetes
      certificate_authority: "{{ lookup('ansible.builtin.file', 'audit-ca.pem') }}"

- name: Enforce the level restricted, except for the network plugin
  attested.kubernetes.control_plane_settings:
    pod_security: restricted
    exempt_namespaces: [kube-flannel]

- name: Remove all arguments and authenticators, and show what changes
  attested.kubernetes.control_plane_settings:
    arguments: {}
    authenticators: []
  diff: true
"""

RETURN = r"""
{}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import LEVELS

SPEC = ArgumentSpec(
    options={
        "arguments": {"type": "dict"},
        "authenticators": {"type": "list", "elements": "dict"},
        "audit_webhook": {"type": "dict"},
        "pod_security": {"type": "str", "choices": list(LEVELS)},
        "exempt_namespaces": {"type": "list", "elements": "str", "default": []},
    }
).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(
        SPEC,
        installed("node.control_plane_settings:run_control_plane_settings"),
        libraries=("cryptography", "yaml"),
    )


if __name__ == "__main__":
    main()
