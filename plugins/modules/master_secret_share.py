#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret_share
short_description: Give versions of the master secret to a control plane
version_added: 0.1.0
description:
  - Challenges the machine and verifies its evidence against the site, on the machine that runs the playbook; then seals
    the versions of the master secret in O(order), with all else that its key service holds, to the machine in the very
    state that was judged. M(attested.kubernetes.master_secret_versions) takes them there.
  - Nothing secret is an argument, a result or a fact.
  - Fails with the reason of the check that refused, V(ROLE_NOT_REGISTERED) for a machine that is no control plane,
    V(MASTER_SECRET_UNKNOWN) for a version that the site does not have, or V(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  order:
    description: Names of the versions that its key service is to hold, the leading one first.
    type: list
    elements: str
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
    details: It judges the machine and sends nothing; it says that there is a change without asking what is there.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Give both versions, the old one leading
  attested.kubernetes.master_secret_share:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    order: [1-0a4f5e2a7c11d58f, 2-9f2c1d5e9f2c1d5e]

- name: Have it hold the new one alone
  attested.kubernetes.master_secret_share:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    order: [2-9f2c1d5e9f2c1d5e]

- name: Check the chain of its endorsement key too
  attested.kubernetes.master_secret_share:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13]
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    order: [2-9f2c1d5e9f2c1d5e]
"""

RETURN = r"""
names:
  description: The versions that its key service holds now, the leading one first.
  returned: success
  type: list
  elements: str
  sample: [2-9f2c1d5e9f2c1d5e, 1-0a4f5e2a7c11d58f]
profile:
  description: The profile that its boot agrees with.
  returned: success
  type: str
  sample: r650-debian13
"""
