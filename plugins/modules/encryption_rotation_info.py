#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encryption_rotation_info
short_description: Say what is left of a rotation of the key for Secrets at rest
version_added: 0.1.0
description:
  - Derives the phases that are left from what the control planes have, what the cluster says which control planes there
    are, and under which keys the etcd of this control plane has its Secrets. There is no other record of a rotation.
  - Of a Secret in etcd only the words before its ciphertext are looked at.
  - Fails with V(ENCRYPTION_PLANES_UNREACHED) unless O(planes) are all control planes of the cluster, with
    V(ENCRYPTION_KEYS_DIFFER), V(ENCRYPTION_KEY_LOST), V(ENCRYPTION_FOREIGN), V(ETCD_UNREADABLE) or V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  old:
    description: Name of the key that shall go, V(identity) where Secrets in clear shall go.
    type: str
    required: true
  planes:
    description: The results of M(attested.kubernetes.encryption_info) on every control plane.
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
  attested.kubernetes.encryption_rotation_info:
    old: key-1
    planes: "{{ ansible_play_hosts | map('extract', hostvars, 'plane') | list }}"
  register: rotation
  run_once: true

- name: See whether Secrets are still there in clear
  attested.kubernetes.encryption_rotation_info:
    old: identity
    planes: "{{ ansible_play_hosts | map('extract', hostvars, 'plane') | list }}"
  run_once: true

- name: Show what is left
  ansible.builtin.debug:
    var: rotation.phases
"""

RETURN = r"""
phases:
  description: What is left to do, in its order; of C(make), C(share), C(lead), C(rewrite), C(retire).
  returned: success
  type: list
  elements: str
  sample: [lead, rewrite, retire]
successor:
  description: Name of the key that stays, empty before it is made.
  returned: success
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
source:
  description: The control plane that makes the key, or gives the others what they lack.
  returned: success
  type: str
  sample: cp-1
missing:
  description: Names of the keys that the source gives, by control plane.
  returned: success
  type: dict
  sample: {"cp-2": ["key-2-9f2c1d5e9f2c1d5e"]}
orders:
  description: Names of the keys that each control plane has after the first phase that is left, in their order.
  returned: success
  type: dict
  sample: {"cp-1": ["key-2-9f2c1d5e9f2c1d5e", "key-1"]}
stored:
  description: How many Secrets etcd has under each key, under V(identity) those in clear.
  returned: success
  type: dict
  sample: {"key-1": 12}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.encryption_rotation import run_rotation_info

SPEC = ArgumentSpec(
    options={
        "old": {"type": "str", "required": True},
        "planes": {"type": "list", "elements": "dict", "required": True},
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_rotation_info, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
