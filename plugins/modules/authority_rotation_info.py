#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: authority_rotation_info
short_description: Say what is left of a rotation of the cluster"s authorities
version_added: 0.1.0
description:
  - Derives the phases that are left from what every node said, and from what the cluster says which nodes there are.
    There is no other record of a rotation. One that was begun is ended first, whatever O(old) is.
  - Fails with V(AUTHORITIES_UNREACHED) unless O(found) are all nodes of the cluster and no others, with
    V(AUTHORITIES_DIFFER), V(OPTION_INVALID) or V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  old:
    description: Name of the cluster CA that shall go, and with it the other authorities.
    type: str
    required: true
  found:
    description: The results of M(attested.kubernetes.authority_info) on every node.
    type: list
    elements: dict
    required: true
  kubeconfig:
    description: Kubeconfig on this machine with the rights for it.
    type: path
    default: /etc/kubernetes/admin.conf
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: See what a rotation would do
  attested.kubernetes.authority_rotation_info:
    old: 9f2c1d5e9f2c1d5e
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'authorities') | list }}"
  register: rotation
  run_once: true

- name: See which cluster CA is in force, and end nothing
  attested.kubernetes.authority_rotation_info:
    old: ""
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'authorities') | list }}"
  run_once: true

- name: Show what is left
  ansible.builtin.debug:
    var: rotation.phases
"""

RETURN = r"""
phases:
  description: What is left to do, in its order; of C(make), C(share), C(trust), C(issue), C(retire), C(forget).
  returned: success
  type: list
  elements: str
  sample: [issue, retire, forget]
in_force:
  description: Names of the cluster CAs that sign now; two while the phase C(issue) goes on.
  returned: success
  type: list
  elements: str
  sample: [9f2c1d5e9f2c1d5e]
successors:
  description: Names of the keys that stay, by authority; empty before they are made.
  returned: success
  type: dict
  sample: {"cluster": "1d5e9f2c1d5e9f2c"}
source:
  description: The control plane that makes the successors, or gives them to the others.
  returned: success
  type: str
  sample: cp-1
bundles:
  description: By control plane that the first phase changes, and by authority, whom it believes then.
  returned: success
  type: dict
  sample: {"cp-2": {"cluster": ["9f2c1d5e9f2c1d5e", "1d5e9f2c1d5e9f2c"]}}
kubelets:
  description: Nodes whose kubelets need a ticket in the first phase, after the control planes.
  returned: success
  type: list
  elements: str
  sample: [w-1]
waits_until:
  description: Before this time the first phase would refuse tokens of pods that are good; empty where it may begin.
  returned: success
  type: str
  sample: "2026-11-22T13:00:00Z"
known:
  description: Every public half by name, PEM.
  returned: success
  type: dict
  sample: {"9f2c1d5e9f2c1d5e": "-----BEGIN CERTIFICATE-----..."}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.ca_rotation import run_rotation_info

SPEC = ArgumentSpec(
    options={
        "old": {"type": "str", "required": True},
        "found": {"type": "list", "elements": "dict", "required": True},
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_rotation_info, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
