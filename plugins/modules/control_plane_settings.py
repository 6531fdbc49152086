#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_settings
short_description: Set a site's arguments, authenticators and Pod security on a control plane
version_added: 0.2.0
description:
  - Adds arguments to the API server, the controller manager, the scheduler and etcd of this control plane, and takes
    away those that it added before. Control planes that join later, and upgrades, use the same arguments, because the
    ConfigMap C(kubeadm-config) contains them.
  - A program whose arguments change is restarted and waited for. If it is not healthy then, its previous manifest is
    restored and the module fails with V(CONTROL_PLANE_COMPONENT_UNHEALTHY). One control plane of a cluster at a time;
    after five minutes of another one's turn it fails with V(CONTROL_PLANE_JOIN_BUSY).
  - Has the API server authenticate the tokens of other issuers, for example of OpenID Connect. It takes that over
    without a restart. If it refuses the authenticators, the previous file is restored and the module fails with
    V(CONFIG_INVALID).
  - Has the API server enforce a level of Kubernetes' Pod Security Standards, and refuse the externalIPs of Services. A
    new cluster has this from its first start, and nothing is changed then. Otherwise the API server is restarted; other
    admission plugins that it has stay. Where it is not healthy afterwards, file and manifest are put back.
  - Fails with V(ADMISSION_FOREIGN) for an admission configuration of another origin, with V(OPTION_INVALID) for a
    namespace that there cannot be, and with V(CONTROL_PLANE_MANIFEST_MALFORMED) for a manifest that is not
    C(kubeadm)'s. A run that was killed is done again.
  - Fails with V(CONFIG_INVALID) and changes nothing for an argument that decides who gets access to keys, nodes and
    admission, and for one that C(kubeadm) or this collection sets.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  arguments:
    description:
      - Arguments by name, without leading dashes, for each of C(kube-apiserver), C(kube-controller-manager),
        C(kube-scheduler) and C(etcd). All that the site adds; without this option the arguments stay as they are.
      - C(feature-gates) is a mapping of names to booleans. C(enable-admission-plugins) is added to the plugins of this
        collection.
    type: dict
  authenticators:
    description:
      - Entries of the field C(jwt) of an C(AuthenticationConfiguration) of C(apiserver.config.k8s.io/v1). All that the
        site adds; without this option they stay as they are.
      - Each gets rules by which a token is refused if its user or one of its groups begins with C(system:),
        C(attested:) or C(kubeadm:).
    type: list
    elements: dict
  pod_security:
    description:
      - What the API server enforces on Pods in namespaces without a label of their own; without this option it stays
        as it is.
      - V(privileged) enforces nothing, and a user who may create a Pod then controls the machine that it runs on.
    type: str
    choices: [baseline, restricted, privileged]
  exempt_namespaces:
    description:
      - Namespaces on whose Pods nothing is enforced, beside kube-system. A user who may create Pods there controls
        every node. Used with O(pod_security).
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
- name: Keep audit logs for longer, and turn on a feature gate
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
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.pod_security import LEVELS

SPEC = ArgumentSpec(
    options={
        "arguments": {"type": "dict"},
        "authenticators": {"type": "list", "elements": "dict"},
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
