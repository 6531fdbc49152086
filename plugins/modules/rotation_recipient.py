#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_recipient
short_description: Verify a control plane that receives the new keys of a rotation
version_added: 0.2.0
description:
  - Challenges the machine and verifies its evidence against the site, on the machine that runs the playbook.
  - For V(authorities) and V(encryption_key) another control plane has the keys. The module returns an order for it,
    sealed to its O(offer). M(attested.kubernetes.rotation_share) opens the order there and seals the keys to the
    machine in the verified state. The machine that runs the playbook never receives the keys.
  - For V(master_secret) the site has the versions. They are sealed to the machine in the verified state, with
    everything else that a key service holds. M(attested.kubernetes.rotation_phase) installs them there. No secret is an
    argument, a result or a fact.
  - The module fails with the reason of the failed check. It fails with V(ROLE_NOT_REGISTERED) if the machine is not a
    control plane, with V(MASTER_SECRET_UNKNOWN) if the site does not have a version, or with V(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  names:
    description:
      - Names of the keys that the machine receives. For V(master_secret) all versions that it will hold, the current
        version first.
    type: list
    elements: str
    required: true
  offer:
    description:
      - One-time public key of the control plane that sends the keys, base64. Required unless O(kind=master_secret).
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
    details:
      - The machine is verified, and nothing is sent. For V(master_secret) a change is reported without reading the
        present versions.
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

- name: Send both versions of the master secret with the old version in force
  attested.kubernetes.rotation_recipient:
    kind: master_secret
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    names: [1-0a4f5e2a7c11d58f, 2-9f2c1d5e9f2c1d5e]

- name: Also verify the certificate chain of the endorsement key, on a slow TPM
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
  description: Handle of the answer that the machine keeps until it receives the box.
  returned: for authorities and encryption_key
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
order:
  description: The order that names the recipient of the keys, sealed to O(offer), base64.
  returned: for authorities and encryption_key
  type: str
  sample: CAESDA==
names:
  description: Versions that the key service of the machine holds now, the current version first.
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
