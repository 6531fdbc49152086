#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_member_info
short_description: Read the members of etcd and their health
version_added: 0.1.0
description:
  - Asks the member of this control plane for the list, and each member how it is, over TLS with the certificate that
    kubeadm made for it.
  - A member that does not answer is no failure. Fails with V(ETCD_UNREACHABLE) or V(ETCD_REFUSED) where that of this
    control plane does not.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.etcd
"""

EXAMPLES = r"""
- name: Read the members
  attested.kubernetes.etcd_member_info:
  register: etcd

- name: Check that etcd keeps quorum without one member
  ansible.builtin.assert:
    that: etcd.healthy > etcd.majority

- name: List the members that do not answer
  ansible.builtin.debug:
    msg: "{{ etcd.members | rejectattr('healthy') | map(attribute='name') }}"
"""

RETURN = r"""
members:
  description: All members.
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

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import etcd_spec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_member import run_member_info

SPEC = etcd_spec()


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_member_info)


if __name__ == "__main__":
    main()
