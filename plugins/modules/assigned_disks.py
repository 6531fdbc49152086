#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: assigned_disks
short_description: Write into the site which disk the cluster assigned to which machine
version_added: 0.2.0
description:
  - Writes C(attested_disk_id) into C(host_vars/<node>/identity.yml), for each node of the inventory to whose machine
    the cluster has assigned one, and leaves the rest of the file as it stands. Commit that file. From it, and from the
    recovery kit that holds it, the key of the disk is derived when no cluster answers any more.
  - What counts is the key service's word in the identity, not what a machine says of itself. A machine to which nothing
    was assigned yet keeps what the site says, since it may have taken over the disk of the machine before it.
  - Warns where the site said another id. Fails with C(SITE_INVENTORY) where two nodes would have one disk or a file
    cannot be added to, with C(DISK_ID_MALFORMED), and with C(IDENTITY_AMBIGUOUS) where control planes say two ids of
    one machine; nothing is written then.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
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
options:
  records:
    description: Results of M(attested.kubernetes.policy_record), of one control plane or more.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Read the assigned disk ids
  attested.kubernetes.policy_record:
  register: record

- name: Record the disk ids in the site
  attested.kubernetes.assigned_disks:
    site: "{{ inventory_dir }}"
    records: ["{{ record }}"]
  run_once: true

- name: Show the changes of the site
  attested.kubernetes.assigned_disks:
    site: /srv/sites/prod
    records: "{{ ansible_play_hosts | map('extract', hostvars) | map(attribute='record') }}"
  run_once: true
  check_mode: true
  diff: true
"""

RETURN = r"""
disks:
  description: Node to the id that was assigned to its disk.
  returned: success
  type: dict
  sample: {"w-1": "81111111-2222-4333-8444-555555555555"}
files:
  description: The files that were changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/srv/sites/prod/host_vars/w-1/identity.yml]
"""
