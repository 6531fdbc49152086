#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_recovery
short_description: Open the disks of locked nodes that no cluster answers
version_added: 0.2.0
description:
  - Asks many locked nodes at once, on the machine that runs the playbook, all control planes first and then all
    workers. Each is judged by the site's profiles and identities over its own connection; only then it gets the key of
    its own disk and the measurement secret, sealed to what was judged. Needs neither ssh nor a cluster.
  - The secrets come from the site (with the vault password of this run) or from O(kit), and stay in memory here.
  - The disk of a node is C(attested_disk_id) of the host, else what O(kit) holds. The node is never asked for it.
  - Prints a line as soon as the result of a node is known, and a table at the end. A node that the cluster or another
    admin recovered first counts as recovered.
  - Fails with C(RECOVERY_INCOMPLETE) if a node stays locked; the table gives the reason. A node without a known disk
    is a row with C(RECOVERY_DISK_UNKNOWN); the other nodes are still recovered.
  - A host whose machine is not enrolled, refused or revoked is left out. Fails with C(SITE_INVENTORY) if no host
    is left, and for two hosts with one disk.
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
      - The secrets are opened and each node is asked for evidence and judged, but nothing is sent to it. A node whose
        disk is open already may be said to be one that can be recovered.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A node that is open already says that another one was first. One that has left its recovery service since does
        not answer any more, and then counts as silent.
options:
  nodes:
    description: Names of the nodes; each is asked at its C(ansible_host).
    type: list
    elements: str
    required: true
  kit:
    description:
      - File of a recovery kit of this cluster, to be used instead of the site's secrets. It is opened by one of
        O(identity_file), O(passphrase_file) and O(token_module) with O(pin_file).
      - Fails with C(KIT_OTHER_CLUSTER) for that of another cluster, and with C(KIT_KEY_WRONG) where it is opened in
        another way.
    type: path
  port:
    description: Port at which the nodes wait.
    type: int
    default: 9999
  parallel:
    description: How many nodes are asked at the same time.
    type: int
    default: 16
  wait_seconds:
    description: How long a node that does not answer yet, or has no time, is asked again.
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
  description: What became of each node. The states are as in RV(table).
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
  description: Rows for a terminal, a header first, a sentence last.
  returned: success or C(RECOVERY_INCOMPLETE)
  type: list
  elements: str
  sample: ["node  role           result     seconds  code  what to do"]
left_out:
  description: Host to the reason why it was not asked.
  returned: success or C(RECOVERY_INCOMPLETE)
  type: dict
  sample: {"w-7": "its machine is Refused"}
"""
