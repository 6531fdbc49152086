#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation
short_description: Plan the remaining phases of a rotation, and run those of the site
version_added: 0.2.0
description:
  - Derives the remaining phases from what every node has and from the nodes of the cluster. For V(encryption_key) it
    also uses the keys under which etcd stores Secrets, for V(master_secret) the versions of the site. There is no other
    record of a rotation. An unfinished rotation of authorities or of the master secret is completed first, regardless
    of O(old).
  - With O(apply) the module runs the next phase of V(master_secret) if it is a phase of the site. These phases create a
    new version in addition to the version in force, and at the end delete the old version. Each of them writes the
    encrypted file in C(.secrets/) once.
  - The plan is computed on the machine that runs the playbook. The nodes of the cluster are read on the host of the
    task, which is a control plane. The module never returns a secret.
  - The module fails with V(ROTATION_NODES_UNREACHED) unless O(found) has exactly the nodes of the cluster (for
    V(encryption_key) the control planes). It also fails with V(AUTHORITIES_DIFFER), V(ENCRYPTION_KEYS_DIFFER),
    V(ENCRYPTION_KEY_LOST), V(ENCRYPTION_FOREIGN), V(ETCD_UNREACHABLE), V(MASTER_SECRETS_DIFFER),
    V(MASTER_SECRET_UNKNOWN), V(OPTION_INVALID), V(KUBECTL_FAILED), V(SITE_SECRETS_INCOMPLETE) or V(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  old:
    description:
      - Name of the cluster CA, encryption key or version to replace. V(identity) replaces Secrets in clear. If empty,
        only an unfinished rotation is completed.
    type: str
    default: ""
  found:
    description: Results of M(attested.kubernetes.rotation_info) on every node.
    type: list
    elements: dict
    required: true
  site:
    description: Directory of the site. Required for O(kind=master_secret).
    type: path
  apply:
    description: If true, the next phase is run if it is a phase of the site.
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.rotation
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Show what a rotation of the CAs would do
  attested.kubernetes.rotation:
    kind: authorities
    old: 9f2c1d5e9f2c1d5e
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'found') | list }}"
  register: rotation
  run_once: true

- name: Show whether etcd still has Secrets in clear
  attested.kubernetes.rotation:
    kind: encryption_key
    old: identity
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'found') | list }}"
  run_once: true

- name: Run the site's phase of a rotation of the master secret
  attested.kubernetes.rotation:
    kind: master_secret
    site: "{{ inventory_dir }}"
    old: 1-0a4f5e2a7c11d58f
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'found') | list }}"
    apply: true
  run_once: true
"""

RETURN = r"""
kind:
  description: What is rotated.
  returned: success
  type: str
  sample: authorities
phases:
  description: Remaining phases, in order. The first one is the next.
  returned: success
  type: list
  elements: str
  sample: [issue, retire, forget]
successor:
  description: Name of the cluster CA, key or version that remains. Empty before it is created.
  returned: success
  type: str
  sample: 1d5e9f2c1d5e9f2c
source:
  description: The control plane that creates the new keys, or sends them to the others. Empty for the master secret.
  returned: success
  type: str
  sample: cp-1
changes:
  description:
    - By node that the first phase changes, what the node has afterwards. For authorities these are the trusted CAs by
      authority. For an encryption key these are the keys of its file (C(keys)). For the master secret these are the
      versions of its key service or its disk (C(names)).
  returned: success
  type: dict
  sample: {"cp-2": {"cluster": ["9f2c1d5e9f2c1d5e", "1d5e9f2c1d5e9f2c"]}}
receives:
  description: Names of the keys that the source sends, by control plane.
  returned: success
  type: dict
  sample: {"cp-2": ["key-2-9f2c1d5e9f2c1d5e"]}
in_force:
  description: Names of the cluster CAs that sign now; two during the phase C(issue).
  returned: for authorities
  type: list
  elements: str
  sample: [9f2c1d5e9f2c1d5e]
kubelets:
  description: Nodes whose kubelets need a ticket in the first phase, after the control planes.
  returned: for authorities
  type: list
  elements: str
  sample: [w-1]
waits_until:
  description: Time before which the first phase would invalidate valid tokens of Pods. Empty if the phase may begin.
  returned: for authorities
  type: str
  sample: "2026-11-22T13:00:00Z"
known:
  description: Every public key or certificate by name, PEM.
  returned: for authorities
  type: dict
  sample: {"9f2c1d5e9f2c1d5e": "-----BEGIN CERTIFICATE-----..."}
stored:
  description: Number of Secrets in etcd under each key. V(identity) counts those in clear.
  returned: for encryption_key
  type: dict
  sample: {"key-1": 12}
disks:
  description: Nodes whose disk is not under the successor.
  returned: for master_secret
  type: list
  elements: str
  sample: [w-1]
versions:
  description: Versions of the site before this run.
  returned: for master_secret
  type: list
  elements: str
  sample: [1-0a4f5e2a7c11d58f, 2-9f2c1d5e9f2c1d5e]
"""
