#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: admission_plugins
short_description: Say what the API server of this control plane holds Pods and Services to
version_added: 0.1.0
description:
  - Has the API server hold Pods to a level of Kubernetes' Pod Security Standards, and refuse the externalIPs of
    Services. Control planes that join later are told the same by the ConfigMap C(kubeadm-config).
  - A new cluster has this from its first start, and nothing is changed then. Of one that was made before, or with
    other options, the API server is started anew and waited for; other admission plugins that it has stay.
  - Where it is not well afterwards, file and manifest are put back (V(CONTROL_PLANE_COMPONENT_UNHEALTHY)). A run that
    was killed is done again. One control plane of a cluster at a time; after five minutes of another one's turn it
    fails with V(CONTROL_PLANE_JOIN_BUSY).
  - An admission configuration that is not ours fails with V(ADMISSION_FOREIGN), a level or namespace that there cannot
    be with V(OPTION_INVALID), a manifest that is not C(kubeadm)'s with V(CONTROL_PLANE_MANIFEST_MALFORMED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  pod_security:
    description:
      - What Pods are held to where their namespace has no label of its own. V(privileged) holds them to nothing, and
        whoever may create a Pod then takes the machine that it runs on.
    type: str
    choices: [baseline, restricted, privileged]
    default: baseline
  exempt_namespaces:
    description:
      - Namespaces whose Pods are held to nothing, beside kube-system; whoever may create Pods there may take every
        node.
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
- name: Enforce the level baseline
  attested.kubernetes.admission_plugins:

- name: Enforce the level restricted, except for the network plugin
  attested.kubernetes.admission_plugins:
    pod_security: restricted
    exempt_namespaces: [kube-flannel]

- name: Check whether the API server would be restarted
  attested.kubernetes.admission_plugins:
  check_mode: true
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
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.pod_security import BASELINE, LEVELS

SPEC = ArgumentSpec(
    options={
        "pod_security": {"type": "str", "choices": list(LEVELS), "default": BASELINE},
        "exempt_namespaces": {"type": "list", "elements": "str", "default": []},
    }
).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(
        SPEC,
        installed("node.admission_plugins:run_admission_plugins"),
        libraries=("cryptography", "kubernetes", "yaml"),
    )


if __name__ == "__main__":
    main()
