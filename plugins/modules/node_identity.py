#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Write the TPM and the disk of a machine into the site
version_added: 0.2.0
description:
  - Writes C(host_vars/<node>/identity.yml) on the machine that runs the playbook. Commit that file.
  - With O(node) the module writes the identity of one machine and keeps the id of its disk. Verify the TPM first, with
    M(attested.kubernetes.attestation_verification).
  - With O(machines) the module writes the identities of all machines in a list, without a connection to them. A host
    belongs to the entry with its C(attested_serial), else with its name. The list states which key is in which machine.
    Each machine must still prove its key before it gets a ticket. A host that has an identity keeps it.
  - With O(machines) nothing is written if one entry is wrong. The module fails with C(EK_SOURCE_UNUSABLE), with
    C(EK_CHANGED) if the site has another key, with C(IDENTITY_REVOKED) for a machine that was replaced, and with
    C(IDENTITY_AMBIGUOUS) or C(EK_ALIAS_TAKEN) if two hosts have one key.
  - The file is replaced completely, so the module fails with C(SITE_INVENTORY) if the file contains anything but an
    identity.
  - With O(records) the module writes C(attested_disk_id) for each node of the inventory to whose machine the cluster
    has assigned a disk id. The rest of the files is kept. If the cluster is lost, the key of the disk is derived from
    this id, which the recovery kit contains too. The id is that of the identity in the cluster, never one that a
    machine claims. A machine without an assigned id keeps the id of the site, because it may use the disk of its
    predecessor.
  - With O(records) the module warns if the site had another id. It writes nothing and fails with C(SITE_INVENTORY) if
    two nodes would have one disk or a file cannot be extended, with C(DISK_ID_MALFORMED), and with
    C(IDENTITY_AMBIGUOUS) if control planes have two ids of one machine.
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
    description: Admission of the machine. Only the signed policy can change V(Revoked) back.
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
      - Endorsement key to the second key of its TPM, each as C(sha256:) and 64 hexadecimal digits, of this machine and
        of those in O(replaced). Evidence with either key then belongs to the same identity.
    type: dict
    default: {}
  records:
    description: Results of M(attested.kubernetes.policy_record) without a policy, from one or more control planes.
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
    description: Hosts that may be enrolled by O(machines).
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

- name: Write a fingerprint that was read on the console
  attested.kubernetes.node_identity:
    site: /srv/sites/prod
    node: w-1
    ek_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
    known_by: console fingerprint

- name: Write both endorsement keys of one TPM
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
  description: Path of the file with the identity.
  returned: with O(node)
  type: str
  sample: /srv/sites/prod/host_vars/w-1/identity.yml
identity:
  description: Name of the identity in the cluster.
  returned: with O(node)
  type: str
  sample: ek-9f2c1d5e9f2c1d5e9f2c
disks:
  description: Node to the id of its assigned disk.
  returned: with O(records)
  type: dict
  sample: {"w-1": "81111111-2222-4333-8444-555555555555"}
enrolled:
  description: Hosts that got an identity, or in check mode would get one.
  returned: with O(machines)
  type: list
  elements: str
  sample: [w-1, w-2]
known:
  description: Hosts that already had the identity of the list.
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
  description: Entries of the list that match no host of the site, by serial number.
  returned: with O(machines)
  type: list
  elements: str
  sample: ["7XK2T53"]
files:
  description: The files that were changed, or in check mode would be changed.
  returned: with O(records) and O(machines)
  type: list
  elements: str
  sample: [/srv/sites/prod/host_vars/w-1/identity.yml]
"""
