#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_member
short_description: Remove a control plane from etcd
version_added: 0.2.0
description:
  - Removes the etcd member of a control plane that is lost or will be removed. It runs on another control plane and
    connects to the member there, over TLS with the certificate that kubeadm created for it. No other program is needed.
  - A lost member still counts for the majority. The module changes nothing and fails with V(ETCD_QUORUM_LOST) if too
    few members answer. It fails with V(ETCD_QUORUM_AT_RISK) if the answering members would not be a majority of the
    remaining members. It fails with V(ETCD_LAST_MEMBER) if the member is the last one. Check mode fails in the same
    cases.
  - When a control plane joins (M(attested.kubernetes.kubeadm_node)), kubeadm adds its member, first as a learner.
  - The module also fails with V(ETCD_MEMBER_AMBIGUOUS), with V(ETCD_UNREACHABLE), or with V(ETCD_REFUSED) and the
    message of etcd.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Name of the node, which is also the name of its member.
    type: str
    required: true
  state:
    description: Desired state of the member.
    type: str
    choices: [absent]
    default: absent
  address:
    description: Address of the node. It identifies a member that was added and never started.
    type: str
    default: ""
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.etcd
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Remove a lost control plane from etcd
  attested.kubernetes.etcd_member:
    name: cp-1

- name: Check whether a member can be removed
  attested.kubernetes.etcd_member:
    name: cp-1
  check_mode: true
  diff: true

- name: Remove a member that never started
  attested.kubernetes.etcd_member:
    name: cp-3
    address: 10.0.0.13
"""

RETURN = r"""
removed:
  description: The member that was removed, or in check mode would be removed. Empty if there was no such member.
  returned: success
  type: dict
  contains:
    id:
      description: Id of the member in hexadecimal digits, as etcdctl prints it.
      type: str
    name:
      description: Name of its node. Empty if the member has never started.
      type: str
    peer_urls:
      description: URLs at which the other members reach this member.
      type: list
      elements: str
    client_urls:
      description: URLs at which clients reach this member.
      type: list
      elements: str
    learner:
      description: Whether the member is a learner, which does not vote.
      type: bool
    healthy:
      description: Whether the member answered and could read from a majority.
      type: bool
  sample: {}
members:
  description: The remaining members.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Id of the member in hexadecimal digits, as etcdctl prints it.
      type: str
    name:
      description: Name of its node. Empty if the member has never started.
      type: str
    peer_urls:
      description: URLs at which the other members reach this member.
      type: list
      elements: str
    client_urls:
      description: URLs at which clients reach this member.
      type: list
      elements: str
    learner:
      description: Whether the member is a learner, which does not vote.
      type: bool
    healthy:
      description: Whether the member answered and could read from a majority.
      type: bool
  sample:
    - id: 8e9e05c52164694d
      name: cp-2
      peer_urls: ["https://10.0.0.12:2380"]
      client_urls: ["https://10.0.0.12:2379"]
      learner: false
      healthy: true
healthy:
  description: Number of voting members that answered.
  returned: success
  type: int
  sample: 2
majority:
  description: Number of voting members that must answer so that etcd can write.
  returned: success
  type: int
  sample: 2
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, etcd_spec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_member import run_member

SPEC = ArgumentSpec(
    options={
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["absent"], "default": "absent"},
        "address": {"type": "str", "default": ""},
    }
).merged(etcd_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_member)


if __name__ == "__main__":
    main()
