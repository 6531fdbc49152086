#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: support_bundle
short_description: Put what the nodes gathered into one archive on this machine
version_added: 0.2.0
description:
  - Works on the machine that runs the playbook. Takes what M(attested.kubernetes.support_material_info) gathered on
    each node, adds what the site commits (C(cluster.yml), identities, profiles) and writes one C(tar.gz) of mode 0600.
  - Its C(manifest.json) names origin, size and SHA-256 of each file, how often something was hidden in it, what was
    left out and why, and what is never collected.
  - A node of which nothing came, or nothing that can be read (C(SUPPORT_MATERIAL_MALFORMED)), is a line of the
    manifest. The task fails with C(SITE_NOT_FOUND) and C(FILE_UNUSABLE) only.
  - Nothing of C(.secrets) is opened. Run it once for all nodes, with C(run_once).
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
      - Everything is put together and nothing written.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Each run writes another archive, named by its time.
options:
  name:
    description: Name of the cluster, for the name of the archive.
    type: str
    required: true
  directory:
    description: Where the archive is written; it is made with mode 0700 where it is not there.
    type: path
    required: true
  results:
    description: Results of M(attested.kubernetes.support_material_info) by node, failures among them.
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
  description: The archive.
  returned: success
  type: str
  sample: /srv/sites/prod/support/support-prod-20261122T030000Z.tar.gz
size:
  description: Its size in bytes.
  returned: success
  type: int
  sample: 183000
files:
  description: How many files are in it.
  returned: success
  type: int
  sample: 142
hidden:
  description: How often something was hidden in them.
  returned: success
  type: int
  sample: 0
left_out:
  description: What is not in it, and why.
  returned: success
  type: list
  elements: str
  sample: ["nodes/w-1: everything: Failed to connect to the host via ssh"]
silent:
  description: Nodes of which nothing came.
  returned: success
  type: list
  elements: str
  sample: [w-1]
"""
