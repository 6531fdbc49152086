#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: authority_rotation
short_description: Take one control plane through one phase of a rotation of the cluster"s authorities
version_added: 0.1.0
description:
  - V(make) makes a successor of each authority beside the files, V(share) lays those of another control plane there;
    nothing uses them. V(forget) removes them.
  - V(trust) and V(retire) name in the files whom O(bundles) say, and start etcd, API server, controller manager,
    scheduler, kubelet and key service anew with them, one after the other. V(issue) lets the successors sign as well,
    and has C(kubeadm) make every certificate of this control plane anew.
  - The turn by which control planes join must be O(holder)"s or free, etcd is stopped only where every member is well
    (V(ETCD_MEMBER_UNHEALTHY)), and the first component that does not come up ends the task
    (V(CONTROL_PLANE_COMPONENT_UNHEALTHY), V(CONTROL_PLANE_RENEWAL_UNDONE)). A task that was killed may be repeated.
  - Fails further with V(AUTHORITY_UNUSABLE), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE), V(CONTROL_PLANE_JOIN_BUSY),
    V(CONTROL_PLANE_RENEWAL_FAILED), V(KUBELET_NOT_RUNNING) or V(NODELOCK_NOT_HELD).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  phase:
    description: The phase, which has to be the first one that is left.
    type: str
    choices: [make, share, trust, issue, retire, forget]
    required: true
  bundles:
    description: Whom this control plane believes then, by authority; of M(attested.kubernetes.authority_rotation_info).
    type: dict
    default: {}
  known:
    description: Public halves by name, of the same module.
    type: dict
    default: {}
  handle:
    description: Which answer of this machine O(sealed) was sealed to, of M(attested.kubernetes.encryption_recipient).
    type: str
  sealed:
    description: The box with the successors, of M(attested.kubernetes.authority_share).
    type: str
  holder:
    description: Who holds the turn by which control planes join.
    type: str
    default: rotate-authorities
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Make successors
  attested.kubernetes.authority_rotation:
    phase: make

- name: Take them from another control plane
  attested.kubernetes.authority_rotation:
    phase: share
    handle: "{{ recipient.handle }}"
    sealed: "{{ share.boxes['cp-2'] }}"

- name: Believe both
  attested.kubernetes.authority_rotation:
    phase: trust
    bundles: "{{ rotation.bundles['cp-2'] }}"
    known: "{{ rotation.known }}"
"""

RETURN = r"""
{}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.ca_rotation import run_rotation

SPEC = ArgumentSpec(
    options={
        "phase": {
            "type": "str",
            "choices": ["make", "share", "trust", "issue", "retire", "forget"],
            "required": True,
        },
        "bundles": {"type": "dict", "default": {}},
        "known": {"type": "dict", "default": {}},
        "handle": {"type": "str", "no_log": False},
        "sealed": {"type": "str", "no_log": False},
        "holder": {"type": "str", "default": "rotate-authorities"},
    },
    required_together=(("handle", "sealed"),),
).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_rotation, libraries=("cryptography", "kubernetes", "yaml"))


if __name__ == "__main__":
    main()
