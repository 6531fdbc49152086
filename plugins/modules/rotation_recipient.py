#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_recipient
short_description: Verify a control plane that receives the new keys of a rotation
version_added: 0.1.0
description:
  - Challenges the machine and verifies its evidence against the site, on the machine that runs the playbook.
  - For V(authorities) and V(encryption_key) the keys come from another control plane. Returned is an order to it,
    sealed to what it offered; M(attested.kubernetes.rotation_share) opens the order and seals the keys to the machine
    in the very state that was verified. The keys never come here.
  - For V(master_secret) the site has the versions. They are sealed, with all else that a key service holds, to the
    machine in the very state that was verified, and M(attested.kubernetes.rotation_phase) installs them there. No
    secret is an argument, a result or a fact.
  - Fails with the reason of the check that refused, V(ROLE_NOT_REGISTERED) for a machine that is not a control plane,
    V(MASTER_SECRET_UNKNOWN) for a version that the site does not have, or V(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  names:
    description: Names of the keys that it receives. Of versions of the master secret, all that it holds then, the
      current one first.
    type: list
    elements: str
    required: true
  offer:
    description: The one-time key of the control plane that gives, base64. Required unless O(kind=master_secret).
    type: str
extends_documentation_fragment:
  - attested.kubernetes.rotation
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
    details: It verifies the machine and sends nothing. For V(master_secret) it reports a change without asking what
      is there.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Verify the control plane that receives the encryption key
  attested.kubernetes.rotation_recipient:
    kind: encryption_key
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    names: [key-2-9f2c1d5e9f2c1d5e]
    offer: "{{ hostvars['cp-1'].offered.offer }}"
  register: recipient

- name: Send both versions of the master secret, the old one in force
  attested.kubernetes.rotation_recipient:
    kind: master_secret
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    names: [1-0a4f5e2a7c11d58f, 2-9f2c1d5e9f2c1d5e]

- name: Check the chain of its endorsement key too, on a slow TPM
  attested.kubernetes.rotation_recipient:
    kind: master_secret
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13]
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    tpm_timeout_seconds: 60
    names: [2-9f2c1d5e9f2c1d5e]
"""

RETURN = r"""
handle:
  description: Handle of the answer that waits on the machine for the box.
  returned: for authorities and encryption_key
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
order:
  description: The recipient of the keys, sealed to the offer, base64.
  returned: for authorities and encryption_key
  type: str
  sample: CAESDA==
names:
  description: The versions that its key service holds now, the current one first.
  returned: for master_secret
  type: list
  elements: str
  sample: [2-9f2c1d5e9f2c1d5e, 1-0a4f5e2a7c11d58f]
profile:
  description: The profile that the machine matches.
  returned: success
  type: str
  sample: r650-debian13
"""
