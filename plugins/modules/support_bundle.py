#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: support_bundle
short_description: Write the support material of all nodes into one archive
version_added: 0.2.0
description:
  - Runs on the machine that runs the playbook. It takes the results of M(attested.kubernetes.support_material_info) of
    each node and the committed files of the site (C(cluster.yml), identities, profiles). It writes one C(tar.gz) with
    mode 0600.
  - C(manifest.json) in the archive has the origin, size and SHA-256 of each file and the number of redactions in it. It
    also lists what was left out and why, and what is never collected.
  - A node without a result, or with a result that cannot be read (C(SUPPORT_MATERIAL_MALFORMED)), is a line of the
    manifest. The module fails with C(SITE_NOT_FOUND) and C(FILE_UNUSABLE) only.
  - No file in C(.secrets) is opened. Run the module once for all nodes, with C(run_once).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
attributes:
  check_mode:
    support: full
    details:
      - The archive is composed, but not written.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Each run writes another archive with its time in the name.
options:
  name:
    description: Name of the cluster, which is used in the name of the archive.
    type: str
    required: true
  directory:
    description: Directory of the archive. If it does not exist, it is created with mode 0700.
    type: path
    required: true
  results:
    description: Results of M(attested.kubernetes.support_material_info) by node, including failed results.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Collect the material of each node
  attested.kubernetes.support_material_info:
  register: gathered
  ignore_errors: true
  ignore_unreachable: true

- name: Write the support bundle
  attested.kubernetes.support_bundle:
    site: "{{ inventory_dir }}"
    name: prod
    directory: "{{ inventory_dir }}/support"
    results: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'gathered'))) }}"
  run_once: true
  register: bundle

- name: Print the bundle's path
  ansible.builtin.debug:
    var: bundle.path
"""

RETURN = r"""
path:
  description: Path of the archive.
  returned: success
  type: str
  sample: /srv/sites/prod/support/support-prod-20261122T030000Z.tar.gz
size:
  description: Size of the archive in bytes.
  returned: success
  type: int
  sample: 183000
files:
  description: Number of files in the archive.
  returned: success
  type: int
  sample: 142
hidden:
  description: Number of redactions in these files.
  returned: success
  type: int
  sample: 0
left_out:
  description: What was left out, and why.
  returned: success
  type: list
  elements: str
  sample: ["nodes/w-1: everything: Failed to connect to the host via ssh"]
silent:
  description: Nodes without a result.
  returned: success
  type: list
  elements: str
  sample: [w-1]
"""
