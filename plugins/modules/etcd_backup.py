#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_backup
short_description: Back up etcd into an encrypted file on the admin's machine
version_added: 0.2.0
description:
  - The control plane of the task writes a verified and encrypted snapshot (M(attested.kubernetes.etcd_snapshot)). The
    module fetches the file and removes the oldest files of the directory.
  - A backup is one line of JSON (the manifest) and the snapshot, encrypted with C(age). C(age -d) decrypts it.
  - The module returns no secret. The snapshot is in clear text only in the directory of etcd.
  - The module fails as M(attested.kubernetes.etcd_snapshot) does. It also fails with C(BACKUP_OTHER_CLUSTER) if another
    cluster answers, and with C(BACKUP_DAMAGED) if the file is not received completely.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  directory:
    description: Directory of the backups on the machine that runs the playbook. It is created with mode 0700.
    type: path
    required: true
  keep:
    description:
      - Number of backups to keep in the directory. The oldest are removed. Files with other names are not removed.
    type: int
    default: 7
  recipients:
    description: Recipients of age, C(age1...). Each of them can decrypt the backup.
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
  description: The file that was written, or in check mode the pattern of its name.
  returned: success
  type: str
  sample: /srv/prod/backups/etcd-20261125T231500Z.age
removed:
  description: The backups that were removed, or in check mode would be removed.
  returned: success
  type: list
  elements: str
  sample: [etcd-20261118T231500Z.age]
manifest:
  description: Manifest of the backup, as M(attested.kubernetes.etcd_snapshot) returns it. Empty in check mode.
  returned: success
  type: dict
  sample: {"policy_generation": 3, "revision": 48211}
"""
