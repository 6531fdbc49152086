#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Write which TPM and which disk belong to a machine into the site
version_added: 0.1.0
description:
  - Writes C(host_vars/<node>/identity.yml) on the machine that runs the playbook. Commit that file.
  - With O(node) it writes the identity of one machine and keeps the id of its disk. Verify the TPM first, with
    M(attested.kubernetes.attestation_verification).
  - With O(machines) it writes the identities of all machines in a list, without a connection to them. A host belongs to
    the entry with its C(attested_serial), else with its name. The list is the admin's word on which key is in which
    machine; the machine still proves that key before it gets a ticket. A host that has an identity keeps it. If one
    entry is wrong, nothing is written. It fails with C(EK_SOURCE_UNUSABLE), with C(EK_CHANGED) if the site names
    another key, with C(IDENTITY_REVOKED) for a machine that was replaced, and with C(IDENTITY_AMBIGUOUS) or
    C(EK_ALIAS_TAKEN) if two hosts have one key.
  - The file is written whole, so it fails with C(SITE_INVENTORY) if it says anything but an identity.
  - With O(records) it writes C(attested_disk_id) for each node of the inventory to whose machine the cluster has
    assigned one, and keeps the rest of the files. From this id, and from the recovery kit that has it too, the key of
    the disk is derived if the cluster is lost. The identity in the cluster decides, never what a machine claims. A
    machine without an assigned id keeps the id of the site, because it may use the disk of its predecessor.
  - With O(records) it warns if the site had another id. It fails with C(SITE_INVENTORY) if two nodes would have one
    disk or a file cannot be extended, with C(DISK_ID_MALFORMED), and with C(IDENTITY_AMBIGUOUS) if control planes have
    two ids of one machine; it then writes nothing.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  node:
    description: Name of the node, as in the inventory. Requires O(ek_sha256) and O(known_by).
    type: str
  ek_sha256:
    description: SHA-256 of the endorsement key's SubjectPublicKeyInfo, 64 hexadecimal digits.
    type: str
  known_by:
    description: Who vouches for the TPM.
    type: str
  admission:
    description: The admin's word on the machine. Back from V(Revoked) leads the signed policy alone.
    type: str
    choices: [Approved, Refused, Revoked]
    default: Approved
  replaced:
    description: Endorsement keys (SHA-256, 64 hexadecimal digits each) of the machines that were this node before.
    type: list
    elements: str
    default: []
  ek_aliases:
    description:
      - Endorsement key to the second key of its chip, each C(sha256:) and 64 hexadecimal digits, of this machine
        and of those in O(replaced). Evidence over either key is then that of the same identity.
    type: dict
    default: {}
  records:
    description: Results of M(attested.kubernetes.policy_record) without a policy, of one control plane or more.
    type: list
    elements: dict
  machines:
    description:
      - A list of machines. Requires O(nodes).
      - C(.yml) or C(.json) - a mapping of serial number to the SHA-256 of the endorsement key's SubjectPublicKeyInfo.
      - C(.csv) - the columns C(serial) and C(ek_sha256), or C(ek_certificate) with a certificate in base64 of DER or
        in PEM.
      - C(.json) - the answer of a Keylime registrar with agents by UUID, resources of a BMC's Redfish service by their
        C(@odata.id), or a list of such objects.
    type: path
  nodes:
    description: The hosts that may be enrolled by O(machines).
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Write a verified identity
  attested.kubernetes.node_identity:
    site: "{{ inventory_dir }}"
    node: "{{ inventory_hostname }}"
    ek_sha256: "{{ found.ek_sha256 }}"
    known_by: "{{ found.known_by }}"

- name: Write a fingerprint from the console
  attested.kubernetes.node_identity:
    site: /srv/sites/prod
    node: w-1
    ek_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
    known_by: console fingerprint

- name: Write both endorsement keys of one chip
  attested.kubernetes.node_identity:
    site: "{{ inventory_dir }}"
    node: "{{ inventory_hostname }}"
    ek_sha256: "{{ found.ek_sha256 }}"
    known_by: "{{ found.known_by }}"
    ek_aliases: "{{ found.ek_aliases }}"

- name: Check whether the identity would change
  attested.kubernetes.node_identity:
    site: "{{ inventory_dir }}"
    node: "{{ inventory_hostname }}"
    ek_sha256: "{{ found.ek_sha256 }}"
    known_by: "{{ found.known_by }}"
  check_mode: true
  diff: true

- name: Enroll the machines of a list
  attested.kubernetes.node_identity:
    site: "{{ inventory_dir }}"
    machines: /srv/deliveries/rack-7.csv
    nodes: "{{ ansible_play_hosts_all }}"
  run_once: true

- name: Read the policy record
  attested.kubernetes.policy_record:
  register: record

- name: Record the assigned disk ids
  attested.kubernetes.node_identity:
    site: "{{ inventory_dir }}"
    records: "{{ ansible_play_hosts | map('extract', hostvars) | map(attribute='record') }}"
  run_once: true
"""

RETURN = r"""
path:
  description: The file.
  returned: with O(node)
  type: str
  sample: /srv/sites/prod/host_vars/w-1/identity.yml
identity:
  description: Name of the identity in the cluster.
  returned: with O(node)
  type: str
  sample: ek-9f2c1d5e9f2c1d5e9f2c
disks:
  description: Node to the id that was assigned to its disk.
  returned: with O(records)
  type: dict
  sample: {"w-1": "81111111-2222-4333-8444-555555555555"}
enrolled:
  description: Hosts that got an identity, in check mode those that would get one.
  returned: with O(machines)
  type: list
  elements: str
  sample: [w-1, w-2]
known:
  description: Hosts that had the identity of the list before.
  returned: with O(machines)
  type: list
  elements: str
  sample: [cp-1]
absent:
  description: Hosts without an identity for which the list has no entry.
  returned: with O(machines)
  type: list
  elements: str
  sample: []
spare:
  description: Entries of the list that belong to no host of the site, by serial number.
  returned: with O(machines)
  type: list
  elements: str
  sample: ["7XK2T53"]
files:
  description: The changed files, in check mode those that would change.
  returned: with O(records) and O(machines)
  type: list
  elements: str
  sample: [/srv/sites/prod/host_vars/w-1/identity.yml]
"""
