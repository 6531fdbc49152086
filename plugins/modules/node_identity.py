#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Write which TPM is in a machine into the site
version_added: 0.1.0
description:
  - Writes C(host_vars/<node>/identity.yml) on the machine that runs the playbook. Commit that file.
  - The id of the machine's disk that M(attested.kubernetes.assigned_disks) wrote into it stays.
  - Whether the TPM may be believed is decided before, by M(attested.kubernetes.attestation_verification).
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
    description: Name of the node, as in the inventory.
    type: str
    required: true
  ek_sha256:
    description: SHA-256 of the endorsement key's SubjectPublicKeyInfo, 64 hexadecimal digits.
    type: str
    required: true
  known_by:
    description: Who vouches for the TPM.
    type: str
    required: true
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
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
  sample: /srv/sites/prod/host_vars/w-1/identity.yml
identity:
  description: Name of the identity in the cluster.
  returned: success
  type: str
  sample: ek-9f2c1d5e9f2c1d5e9f2c
"""
