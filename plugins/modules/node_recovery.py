#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_recovery
short_description: Open the disks of locked nodes if no cluster answers
version_added: 0.2.0
description:
  - Sends requests to many locked nodes at once, on the machine that runs the playbook, first to all control planes and
    then to all workers. Each node is verified against the site's profiles and identities over its own connection. Then
    it gets the key of its own disk and the measurement secret, sealed to the verified state. The module needs neither
    ssh nor a cluster.
  - The secrets come from the site (with the vault password of this run) or from O(kit), and stay in memory on this
    machine.
  - The disk id of a node is C(attested_disk_id) of the host, else that of O(kit). The module never reads it from the
    node.
  - The module prints a line when the result of a node is known, and a table at the end. A node that the cluster or
    another admin recovered first counts as recovered.
  - The module fails with C(RECOVERY_INCOMPLETE) if a node stays locked. The table gives the reason. A node without a
    known disk is a row with C(RECOVERY_DISK_UNKNOWN). The other nodes are still recovered.
  - A host is skipped if its machine is not enrolled, refused or revoked. The module fails with C(SITE_INVENTORY) if no
    host is left, or if two hosts have one disk.
  - Run it once for all nodes, with C(run_once).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kit_keys
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
attributes:
  check_mode:
    support: full
    details:
      - The secrets are decrypted, and each node is asked for evidence and verified, but nothing is sent to it. A node
        whose disk is already open may be reported as a node that can be recovered.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A node that is already open reports that another client was first. A node that has stopped its recovery service
        since then does not answer, and is reported as silent.
options:
  nodes:
    description: Names of the nodes. Each node is reached at its C(ansible_host).
    type: list
    elements: str
    required: true
  kit:
    description:
      - Path of a recovery kit of this cluster, which is used instead of the site's secrets. One of O(identity_file),
        O(passphrase_file) and O(token_module) with O(pin_file) opens it.
      - The module fails with C(KIT_OTHER_CLUSTER) for a kit of another cluster, and with C(KIT_KEY_WRONG) if the kit
        needs another kind of key.
    type: path
  port:
    description: Port of the recovery services.
    type: int
    default: 9999
  parallel:
    description: Number of nodes that are asked at the same time.
    type: int
    default: 16
  wait_seconds:
    description: How long requests to a node that does not answer yet or is busy are retried, in seconds.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Recover every node of the site
  attested.kubernetes.node_recovery:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    nodes: "{{ groups['nodes'] }}"
  run_once: true

- name: Recover the nodes with the secrets of a recovery kit
  attested.kubernetes.node_recovery:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    nodes: "{{ groups['nodes'] }}"
    kit: /media/safe/prod.kit
    identity_file: /media/stick/identity.txt
  run_once: true

- name: Show which nodes can be recovered, without a change
  attested.kubernetes.node_recovery:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    nodes: [cp-1, cp-2, cp-3]
    wait_seconds: 0
  run_once: true
  check_mode: true
"""

RETURN = r"""
nodes:
  description: Result of each node. The states are the same as in RV(table).
  returned: success or C(RECOVERY_INCOMPLETE)
  type: dict
  sample:
    cp-1:
      state: recovered
      role: control-plane
      endpoint: 192.0.2.11:9999
      seconds: 3.2
      reason: ""
      message: ""
      hint: ""
table:
  description: Rows for a terminal, with a header first and a summary last.
  returned: success or C(RECOVERY_INCOMPLETE)
  type: list
  elements: str
  sample: ["node  role           result     seconds  code  what to do"]
left_out:
  description: Host to the reason why it was skipped.
  returned: success or C(RECOVERY_INCOMPLETE)
  type: dict
  sample: {"w-7": "its machine is Refused"}
"""
