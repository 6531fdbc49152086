#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_backup
short_description: Back up etcd into an encrypted file on the admin's machine
version_added: 0.1.0
description:
  - Has the control plane of the task write a verified and encrypted snapshot (M(attested.kubernetes.etcd_snapshot)),
    fetches the file, and removes the oldest files of the directory.
  - A file is C(age) encryption over one line of JSON, the manifest, and the snapshot. C(age -d) opens it.
  - Nothing secret is returned, and nothing is in clear outside of the directory of etcd.
  - Fails as M(attested.kubernetes.etcd_snapshot) does, with C(BACKUP_OTHER_CLUSTER) where another cluster answers, and
    with C(BACKUP_DAMAGED) where the file does not arrive whole.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  directory:
    description: Directory of the backups on the machine that runs the playbook. It is created with mode 0700.
    type: path
    required: true
  keep:
    description: How many backups stay in the directory, the newest. Files with other names are left alone.
    type: int
    default: 7
  recipients:
    description: Recipients of age, C(age1...), of which each opens the backup.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
  - attested.kubernetes.site
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: none
    details: Each run writes another backup.
"""

EXAMPLES = r"""
- name: Back up etcd
  attested.kubernetes.etcd_backup:
    site: "{{ inventory_dir }}"
    directory: "{{ inventory_dir }}/backups"
    recipients: "{{ attested_recovery_kit_recipients }}"
"""

RETURN = r"""
path:
  description: The file that was written, or in check mode its pattern.
  returned: success
  type: str
  sample: /srv/prod/backups/etcd-20261125T231500Z.age
removed:
  description: The backups that were removed, or would be.
  returned: success
  type: list
  elements: str
  sample: [etcd-20261118T231500Z.age]
manifest:
  description: What the backup says of itself, as M(attested.kubernetes.etcd_snapshot) returns it; empty in check mode.
  returned: success
  type: dict
  sample: {"policy_generation": 3, "revision": 48211}
"""
