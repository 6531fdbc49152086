#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret_rotation
short_description: Say what is left of a rotation of the master secret, and do what of it the site does
version_added: 0.1.0
description:
  - Compares the versions that the site has with those of every control plane and every disk, and says which phases are
    left until nothing is under the version O(old). A rotation that was begun is ended first, whatever is asked for.
  - With O(apply) it does the next phase where that is the site's own, which is to make a new version beside the one in
    force, and at the end to forget the old one. Each is one write of the encrypted file in C(.secrets/).
  - Works on the machine that runs the playbook; no secret is ever returned.
  - Fails with V(MASTER_SECRET_UNREACHED), V(MASTER_SECRETS_DIFFER), V(MASTER_SECRET_UNKNOWN), V(OPTION_INVALID),
    V(SITE_SECRETS_INCOMPLETE) or V(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  old:
    description: Name of the version that shall go; empty to end what was begun and nothing else.
    type: str
    default: ""
  found:
    description: The results of M(attested.kubernetes.master_secret_versions_info) on every node.
    type: list
    elements: dict
    required: true
  nodes:
    description: Names of all nodes of the cluster.
    type: list
    elements: str
    required: true
  control_planes:
    description: Names of all its control planes.
    type: list
    elements: str
    required: true
  apply:
    description: Whether to do the next phase where it is the site's own.
    type: bool
    default: false
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
- name: Say which version is in force, and what was begun
  attested.kubernetes.master_secret_rotation:
    site: "{{ inventory_dir }}"
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'versions') | list }}"
    nodes: [cp-1, w-1]
    control_planes: [cp-1]
  run_once: true

- name: Say what is left until the first version is gone
  attested.kubernetes.master_secret_rotation:
    site: "{{ inventory_dir }}"
    old: 1-0a4f5e2a7c11d58f
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'versions') | list }}"
    nodes: [cp-1, w-1]
    control_planes: [cp-1]
  run_once: true

- name: Do the site's part of it
  attested.kubernetes.master_secret_rotation:
    site: "{{ inventory_dir }}"
    old: 1-0a4f5e2a7c11d58f
    found: "{{ ansible_play_hosts | map('extract', hostvars, 'versions') | list }}"
    nodes: [cp-1, w-1]
    control_planes: [cp-1]
    apply: true
  run_once: true
"""

RETURN = r"""
phases:
  description: What is left, in order; the first one is next.
  returned: success
  type: list
  elements: str
  sample: [rekey, retire, forget]
successor:
  description: The version that stays; empty before it is made.
  returned: success
  type: str
  sample: 2-9f2c1d5e9f2c1d5e
order:
  description: What every key service is to hold after the next phase, the leading version first.
  returned: success
  type: list
  elements: str
  sample: [2-9f2c1d5e9f2c1d5e, 1-0a4f5e2a7c11d58f]
disks:
  description: The nodes whose disk is not under the successor.
  returned: success
  type: list
  elements: str
  sample: [w-1]
versions:
  description: The versions that the site has, before this run.
  returned: success
  type: list
  elements: str
  sample: [1-0a4f5e2a7c11d58f, 2-9f2c1d5e9f2c1d5e]
"""
