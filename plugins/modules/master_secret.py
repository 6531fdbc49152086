#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret
short_description: Make the secrets of a site, before any cluster exists
version_added: 0.1.0
description:
  - Makes the master secret, the key of the join CA and the policy key on the admin's machine, all or none,
    encrypted by Ansible Vault in C(.secrets/) of the site.
  - What may be public (cluster id, measurement salt, join CA certificate, public policy key) is written to
    C(cluster.yml), which is committed.
  - Works on the machine that runs the playbook, whatever the host of the task is; no secret is ever returned.
  - Fails with C(SITE_SECRETS_INCOMPLETE) where only a part of the set exists, and with C(SITE_VAULT) without a
    vault password.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  cluster_name:
    description: Name of the cluster; it appears in the subject of the join CA.
    type: str
    required: true
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
"""

EXAMPLES = r"""
- name: Make the secrets of this site
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod

- name: See which files would be made
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod
  check_mode: true
  diff: true

- name: Show what every node of the cluster will pin
  attested.kubernetes.master_secret:
    site: /srv/sites/prod
    cluster_name: prod
  register: made
- ansible.builtin.debug:
    msg: "join CA {{ made.join_ca_sha256 }}"
"""

RETURN = r"""
created:
  description: The files that were made, relative to the site; empty where all existed.
  returned: success
  type: list
  elements: str
  sample: [.secrets/master-secret.json, .secrets/join-ca-key.pem, .secrets/policy-key.pem, cluster.yml]
cluster_id:
  description: The public id of the cluster, 64 hexadecimal digits.
  returned: when the secrets exist
  type: str
  sample: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
join_ca_sha256:
  description: SHA-256 of the join CA's certificate (DER).
  returned: when the secrets exist
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
"""
