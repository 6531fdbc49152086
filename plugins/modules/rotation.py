#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation
short_description: Plan the phases that are left of a rotation, and run those of the site
version_added: 0.1.0
description:
  - Derives the phases that are left from what every node has, from the nodes that the cluster has, and for
    V(encryption_key) from the keys under which etcd has its Secrets, for V(master_secret) from the versions that the
    site has. There is no other record of a rotation. A rotation of authorities or of the master secret that was begun
    is finished first, whatever O(old) is.
  - With O(apply) it runs the next phase of V(master_secret) where that is the site's own, which is to make a new
    version beside the one in force, and at the end to forget the old one. Each is one write of the encrypted file in
    C(.secrets/).
  - Plans on the machine that runs the playbook; a control plane, the host of the task, says which nodes the cluster
    has. No secret is ever returned.
  - Fails with V(ROTATION_NODES_UNREACHED) unless O(found) are all nodes of the cluster and no others (for
    V(encryption_key) all control planes), with V(AUTHORITIES_DIFFER), V(ENCRYPTION_KEYS_DIFFER),
    V(ENCRYPTION_KEY_LOST), V(ENCRYPTION_FOREIGN), V(ETCD_UNREACHABLE), V(MASTER_SECRETS_DIFFER),
    V(MASTER_SECRET_UNKNOWN), V(OPTION_INVALID), V(KUBECTL_FAILED), V(SITE_SECRETS_INCOMPLETE) or V(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  old:
    description:
      - Name of the cluster CA, the encryption key or the version that shall go. V(identity) where Secrets in clear
        shall go. Empty only finishes what was begun.
    type: str
    default: ""
  found:
    description: The results of M(attested.kubernetes.rotation_info) on every node.
    type: list
    elements: dict
    required: true
  site:
    description: The directory of the site. Required for O(kind=master_secret).
    type: path
  apply:
    description: Whether to run the next phase where it is the site's own.
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

- name: Show whether Secrets are still there in clear
  attested.kubernetes.rotation:
    kind: encryption_key
    old: identity
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'found') | list }}"
  run_once: true

- name: Run the site's part of a rotation of the master secret
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
  description: What is left, in order; the first one is next.
  returned: success
  type: list
  elements: str
  sample: [issue, retire, forget]
successor:
  description: Name of the cluster CA, key or version that stays; empty before it is made.
  returned: success
  type: str
  sample: 1d5e9f2c1d5e9f2c
source:
  description: The control plane that makes the new keys, or gives them to the others; empty for the master secret.
  returned: success
  type: str
  sample: cp-1
changes:
  description:
    - By node that the first phase changes, what the node has afterwards. For authorities the trusted CAs by authority;
      for an encryption key the keys of its file (C(keys)); for the master secret the versions of its key service or
      its disk (C(names)).
  returned: success
  type: dict
  sample: {"cp-2": {"cluster": ["9f2c1d5e9f2c1d5e", "1d5e9f2c1d5e9f2c"]}}
receives:
  description: Names of the keys that the source gives, by control plane.
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
  description: Before this time the first phase would refuse valid tokens of Pods; empty where it may begin.
  returned: for authorities
  type: str
  sample: "2026-11-22T13:00:00Z"
known:
  description: Every public half by name, PEM.
  returned: for authorities
  type: dict
  sample: {"9f2c1d5e9f2c1d5e": "-----BEGIN CERTIFICATE-----..."}
stored:
  description: How many Secrets etcd has under each key, under V(identity) those in clear.
  returned: for encryption_key
  type: dict
  sample: {"key-1": 12}
disks:
  description: The nodes whose disk is not under the successor.
  returned: for master_secret
  type: list
  elements: str
  sample: [w-1]
versions:
  description: The versions that the site has, before this run.
  returned: for master_secret
  type: list
  elements: str
  sample: [1-0a4f5e2a7c11d58f, 2-9f2c1d5e9f2c1d5e]
"""
