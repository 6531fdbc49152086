#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster
short_description: Verify the first control plane and send it the cluster's keys
version_added: 0.2.0
description:
  - Challenges the machine, and verifies its evidence against the site on the machine that runs the playbook. Then it
    sends the cluster's keys, sealed to the machine in the verified state. The node protects the keys with its TPM and
    locks itself to the cluster.
  - A second run verifies the machine again and changes nothing.
  - The module fails with the reason of the failed check, with C(SITE_VAULT), C(SITE_SECRETS_INCOMPLETE) or
    C(ROLE_NOT_REGISTERED). It fails with C(CLUSTER_FOUNDER_GONE) if the machine replaces the machine that created the
    cluster.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Verify the first control plane and send it the cluster's keys
  attested.kubernetes.cluster:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"

- name: Verify the machine without a change
  attested.kubernetes.cluster:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
  check_mode: true

- name: Require a certificate chain of its endorsement key
  attested.kubernetes.cluster:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13]
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
"""

RETURN = r"""
cluster_id:
  description: The id of the cluster, 64 hexadecimal digits.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
profile:
  description: The profile that the machine matches.
  returned: success
  type: str
  sample: r650-debian13
posture:
  description: How far the evidence of the profile reaches.
  returned: success
  type: str
  sample: boot
ek_sha256:
  description: The machine's endorsement key.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
steps:
  description: Steps that the node ran, each with its time in seconds.
  returned: when not in check mode
  type: list
  elements: dict
  sample: []
"""
