#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_restoration
short_description: Restore etcd on a control plane from a backup on the admin's machine
version_added: 0.2.0
description:
  - Decrypts the backup on the machine that runs the playbook, compares it with the cluster of the site, and encrypts it
    again to an age identity of this run. Then it verifies the control plane of the task, seals that identity to the
    verified state, and sends both. M(attested.kubernetes.etcd_snapshot) restores the backup there.
  - The identity of the recovery kit stays on the machine that runs the playbook. The content is in clear text only in
    the memory of this machine.
  - The restored cluster has one member. Its policy may be older than that of the site. Until the site's policy is
    applied (playbook C(policy)), the key service refuses every ticket under an older policy.
  - The module fails with C(BACKUP_DAMAGED), C(BACKUP_OTHER_CLUSTER), C(FILE_VERSION_UNKNOWN), C(KIT_KEY_WRONG) or
    C(KIT_KEY_UNUSABLE). It fails with the reason of the failed check if the machine is refused, with
    C(ROLE_NOT_REGISTERED) for a worker, and as M(attested.kubernetes.etcd_snapshot) does.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  backup:
    description: Path of a file that M(attested.kubernetes.etcd_backup) wrote.
    type: path
    required: true
  identity_file:
    description: Path of a file with age identities, one of which decrypts the backup.
    type: path
    required: true
  confirm_healthy:
    description:
      - If true, an etcd that is healthy may be replaced. Otherwise the module fails with C(RESTORE_CLUSTER_HEALTHY).
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
    details: The module decrypts the whole backup and verifies the machine, but sends nothing.
  diff_mode:
    support: none
  idempotent:
    support: none
    details: Each run restores the backup.
"""

EXAMPLES = r"""
- name: Restore etcd
  attested.kubernetes.etcd_restoration:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    backup: backups/etcd-20261125T231500Z.age
    identity_file: /media/stick/identity.txt
"""

RETURN = r"""
manifest:
  description: Manifest of the backup, as M(attested.kubernetes.etcd_snapshot) returns it.
  returned: success
  type: dict
  sample: {"policy_generation": 3, "revision": 48211}
profile:
  description: The profile that the machine matches.
  returned: success
  type: str
  sample: r650-debian13
"""
