#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_verification
short_description: Challenge every node over its verification service and report what differs
version_added: 0.2.0
description:
  - Requests evidence over new challenges from the verification services of many nodes at once, on the machine that runs
    the playbook. Each answer is verified against the site's policy. The module changes nothing on any node and needs no
    ssh.
  - Failures that may be temporary are retried for O(wait_seconds). A node that is refused or does not answer does not
    fail the task. It is listed in RV(not_verified), and its finding gives the reason.
  - Evidence is bound to its TLS connection, so evidence through a proxy is refused with C(CHANNEL_NOT_BOUND).
  - Run it once for all nodes, with C(run_once).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
attributes:
  check_mode:
    support: full
    details:
      - Evidence is requested in check mode too, but no report is written.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Each run requests new evidence, so with O(report) each run writes a new report.
options:
  nodes:
    description: Names of the nodes. Each node is reached at its C(ansible_host).
    type: list
    elements: str
    required: true
  port:
    description: Port of the verification services.
    type: int
    default: 9091
  parallel:
    description: Number of nodes that are asked at the same time.
    type: int
    default: 16
  wait_seconds:
    description: How long requests to a node that is unreachable or busy are retried, in seconds.
    type: int
    default: 20
  results:
    description:
      - Results of M(attested.kubernetes.attestation_verification) by node, from a run over ssh. If set, no verification
        service is asked.
    type: dict
  report:
    description:
      - Path of the report, C(.json) for programs or C(.html) for people (one page that loads and runs nothing). Without
        one of these endings both files are written.
      - The module fails with C(OPTION_INVALID) for a directory.
    type: path
"""

EXAMPLES = r"""
- name: Verify all nodes against the policy
  attested.kubernetes.fleet_verification:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    nodes: "{{ groups['nodes'] }}"
  run_once: true
  register: fleet

- name: Write a report as HTML and as JSON
  attested.kubernetes.fleet_verification:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    nodes: "{{ groups['nodes'] }}"
    report: /var/lib/reports/fleet
  run_once: true

- name: Write a report of evidence that was read over ssh
  attested.kubernetes.fleet_verification:
    site: "{{ inventory_dir }}"
    nodes: "{{ groups['nodes'] }}"
    results: "{{ dict(groups['nodes'] | zip(groups['nodes'] | map('extract', hostvars, 'asked'))) }}"
    report: fleet.html
  run_once: true
"""

RETURN = r"""
findings:
  description: Findings by node, as in the JSON report.
  returned: success
  type: dict
  sample: {"w-1": {"node": "w-1", "outcome": "verified", "over": "service", "profile": "r650-debian13"}}
table:
  description: Rows for a terminal. The header comes first, then the nodes that need an admin.
  returned: success
  type: list
  elements: str
  sample: ["NODE             ROLE          RESULT"]
not_verified:
  description: Names of the nodes that were refused or did not answer.
  returned: success
  type: list
  elements: str
  sample: []
reports:
  description: Paths of the files that were written.
  returned: success
  type: list
  elements: str
  sample: [/var/lib/reports/fleet.html, /var/lib/reports/fleet.json]
"""
