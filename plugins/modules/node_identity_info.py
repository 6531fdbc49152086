#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity_info
short_description: Read the identities in a site's inventory
version_added: 0.2.0
description:
  - Reads groups and C(attested_ek) of the inventory of this run, on the machine that runs the playbook.
  - The module fails with C(SITE_INVENTORY) and names every problem, or with C(IDENTITY_AMBIGUOUS) if two nodes have one
    TPM.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
options: {}
"""

EXAMPLES = r"""
- name: Read the identities of the site
  attested.kubernetes.node_identity_info:
  register: site

- name: Fail if a machine is not enrolled
  ansible.builtin.assert:
    that: site.not_enrolled | length == 0

- name: Apply the identities
  attested.kubernetes.cluster_objects:
    manifests: ["{{ site.manifests }}"]
"""

RETURN = r"""
identities:
  description: The enrolled machines.
  returned: success
  type: list
  elements: dict
  sample: [{"name": "ek-9f2c1d5e9f2c1d5e9f2c", "node": "w-1", "role": "worker", "admission": "Approved"}]
not_enrolled:
  description: Names of the nodes without a TPM in their host variables.
  returned: success
  type: list
  elements: str
  sample: [w-2]
manifests:
  description: The identities as one YAML stream, as they are applied to the cluster.
  returned: success
  type: str
  sample: "kind: NodeIdentity"
"""
