#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_member
short_description: Take a control plane out of etcd
version_added: 0.1.0
description:
  - Removes the member of a control plane that is gone for good, or is to go. Runs on another control plane and asks the
    member there, over TLS with the certificate that kubeadm made for it; no program is needed.
  - A member that is gone still counts for the majority. Nothing is changed where too few members answer
    (V(ETCD_QUORUM_LOST)), where those that answer would be no majority of those that stay (V(ETCD_QUORUM_AT_RISK)), or
    where the member is the last one (V(ETCD_LAST_MEMBER)). Check mode refuses the same.
  - Members are added by kubeadm when a control plane joins (M(attested.kubernetes.kubeadm_node)), as learners first.
  - Fails with V(ETCD_MEMBER_AMBIGUOUS), V(ETCD_UNREACHABLE), or V(ETCD_REFUSED) with etcd's own words.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Name of the node, which is its member's name.
    type: str
    required: true
  state:
    description: What the member shall be.
    type: str
    choices: [absent]
    default: absent
  address:
    description: Address of the node, by which a member is known that was added and has never started.
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
  description: The member that was taken out, or in check mode would be; empty where there was none.
  returned: success
  type: dict
  contains:
    id:
      description: Its number in hexadecimal digits, as etcdctl has it.
      type: str
    name:
      description: Name of its node; empty while it has never started.
      type: str
    peer_urls:
      description: Where the other members reach it.
      type: list
      elements: str
    client_urls:
      description: Where clients reach it.
      type: list
      elements: str
    learner:
      description: Whether it only listens so far, without a vote.
      type: bool
    healthy:
      description: Whether it answered and could read from a majority.
      type: bool
  sample: {}
members:
  description: The members that stay.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Its number in hexadecimal digits, as etcdctl has it.
      type: str
    name:
      description: Name of its node; empty while it has never started.
      type: str
    peer_urls:
      description: Where the other members reach it.
      type: list
      elements: str
    client_urls:
      description: Where clients reach it.
      type: list
      elements: str
    learner:
      description: Whether it only listens so far, without a vote.
      type: bool
    healthy:
      description: Whether it answered and could read from a majority.
      type: bool
  sample:
    - id: 8e9e05c52164694d
      name: cp-2
      peer_urls: ["https://10.0.0.12:2380"]
      client_urls: ["https://10.0.0.12:2379"]
      learner: false
      healthy: true
healthy:
  description: How many voting members answered.
  returned: success
  type: int
  sample: 2
majority:
  description: How many of the voting members must answer so that etcd writes.
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
