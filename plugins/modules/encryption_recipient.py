#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encryption_recipient
short_description: Judge a control plane that gets a key for Secrets at rest
version_added: 0.1.0
description:
  - Challenges the machine and verifies its evidence against the site, on the machine that runs the playbook. Returned
    is an order to whoever has the key, sealed to what that one offered; M(attested.kubernetes.encryption_share) opens
    it and seals the key to the machine in the very state that was judged. The key itself never comes here.
  - Fails with the reason of the check that refused, or V(ROLE_NOT_REGISTERED) for a machine that is no control plane.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  names:
    description: Names of the keys that it gets.
    type: list
    elements: str
    required: true
  offer:
    description: The one-time key of whoever gives, base64.
    type: str
    required: true
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
- name: Judge who gets the key
  attested.kubernetes.encryption_recipient:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    names: [key-2-9f2c1d5e9f2c1d5e]
    offer: "{{ hostvars['cp-1'].offered.offer }}"
  register: recipient

- name: Check the chain of its endorsement key too
  attested.kubernetes.encryption_recipient:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13]
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    names: [key-2-9f2c1d5e9f2c1d5e]
    offer: "{{ hostvars['cp-1'].offered.offer }}"

- name: On a slow TPM
  attested.kubernetes.encryption_recipient:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    tpm_timeout_seconds: 60
    names: [key-2-9f2c1d5e9f2c1d5e]
    offer: "{{ hostvars['cp-1'].offered.offer }}"
"""

RETURN = r"""
handle:
  description: Handle of the answer that waits on the machine for the box.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
order:
  description: To whom the keys are to be sealed, itself sealed to the offer, base64.
  returned: success
  type: str
  sample: CAESDA==
profile:
  description: The profile that the machine matches.
  returned: success
  type: str
  sample: r650-debian13
"""
