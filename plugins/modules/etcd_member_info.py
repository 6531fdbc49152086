#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_member_info
short_description: Read the members of etcd and their health
version_added: 0.2.0
description:
  - Reads the list of members from the member of this control plane, and the health of each member. It connects over TLS
    with the certificate that kubeadm created.
  - The module does not fail if another member does not answer. It fails with V(ETCD_UNREACHABLE) or V(ETCD_REFUSED) if
    the member of this control plane does not answer or refuses the request.
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
  description: All members of etcd.
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

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import etcd_spec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_member import run_member_info

SPEC = etcd_spec()


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_member_info)


if __name__ == "__main__":
    main()
