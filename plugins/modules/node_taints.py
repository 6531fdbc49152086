#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_taints
short_description: Make the taints of a Node those of its site
version_added: 0.2.0
description:
  - Sets O(taints) on a Node, and removes those that an earlier run has set and that are not in O(taints). Taints of
    others stay.
  - Which taints are the site's is noted in labels that no kubelet may change.
  - Works on a control plane. Fails with V(CONFIG_INVALID) for taints that Kubernetes or this collection sets, and with
    V(KUBECTL_FAILED), also where the cluster has no such Node.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Name of the Node.
    type: str
    required: true
  taints:
    description: The taints. With an empty list, those of earlier runs are removed.
    type: list
    elements: dict
    required: true
    suboptions:
      key:
        description: Key, such as C(example.com/gpu).
        type: str
        required: true
      value:
        description: Value.
        type: str
        default: ""
      effect:
        description: What becomes of Pods that do not tolerate it. V(NoExecute) also evicts those that run.
        type: str
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
        required: true
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Keep a node for Pods that use its GPU
  attested.kubernetes.node_taints:
    name: w-1
    taints:
      - {key: example.com/gpu, value: present, effect: NoSchedule}
"""

RETURN = r"""
{}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node_taints import EFFECTS, run_taints

SPEC = ArgumentSpec(
    options={
        "name": {"type": "str", "required": True},
        "taints": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "value": {"type": "str", "default": ""},
                "effect": {"type": "str", "choices": list(EFFECTS), "required": True},
            },
        },
    }
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_taints)


if __name__ == "__main__":
    main()
