#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_status
short_description: Create a table and a report of the status of all nodes
version_added: 0.2.0
description:
  - Creates one table from the results of M(attested.kubernetes.node_status_info) and
    M(attested.kubernetes.cluster_info), on the machine that runs the playbook. It connects to no node.
  - A failed result is a row of the table and an entry of RV(needed).
  - Run it once for all nodes, with C(run_once).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details:
      - No report is written in check mode.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - A report contains the time of its creation, so with O(report) each run writes another report.
options:
  nodes:
    description: Results of M(attested.kubernetes.node_status_info) by name of the node.
    type: dict
    required: true
  cluster:
    description: Result of M(attested.kubernetes.cluster_info).
    type: dict
    required: true
  control_planes:
    description: Names of the control planes. If the cluster does not answer, the result names one of them that is up.
    type: list
    elements: str
    required: true
  next_boots:
    description:
      - What RV(attested.kubernetes.measurement_profile_info#module:judged) says of the next boot, by name of the node.
      - One that is V(refused) or V(unknown) is a line of the table. It needs an operator only before a reboot.
    type: dict
    default: {}
  cluster_name:
    description: Name of the cluster for the title of the page.
    type: str
    default: ""
  report:
    description:
      - Path of the report, C(.json) for programs or C(.html) for people (one page that loads nothing). Without one of
        these endings both files are written.
      - The module fails with C(OPTION_INVALID) for a directory.
    type: path
"""

EXAMPLES = r"""
- name: Make a table of the status
  attested.kubernetes.fleet_status:
    nodes: "{{ dict(groups['nodes'] | zip(groups['nodes'] | map('extract', hostvars, 'read'))) }}"
    cluster: "{{ cluster }}"
    control_planes: "{{ groups['control_planes'] }}"
  run_once: true
  register: status

- name: Write the status as HTML and as JSON
  attested.kubernetes.fleet_status:
    nodes: "{{ dict(groups['nodes'] | zip(groups['nodes'] | map('extract', hostvars, 'read'))) }}"
    cluster: "{{ cluster }}"
    control_planes: "{{ groups['control_planes'] }}"
    cluster_name: prod
    report: /var/lib/reports/status
  run_once: true
"""

RETURN = r"""
table:
  description: Rows for a terminal, the header first.
  returned: success
  type: list
  elements: str
  sample: ["NODE         ROLE          PHASE"]
policy:
  description:
    - Lines about the policy in force and the Pod security that the API server enforces. Empty if the cluster did not
      answer.
  returned: success
  type: list
  elements: str
  sample: ["POLICY generation 7, profiles r650-debian13, 0 revoked, recorded by cp-1: 7"]
needed:
  description: Lines about what needs an admin, under a header. Empty if nothing does.
  returned: success
  type: list
  elements: str
  sample: []
reports:
  description: Paths of the files that were written.
  returned: success
  type: list
  elements: str
  sample: [/var/lib/reports/status.html, /var/lib/reports/status.json]
"""
