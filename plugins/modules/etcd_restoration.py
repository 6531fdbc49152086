#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_restoration
short_description: Restore etcd on a control plane from a backup on the admin's machine
version_added: 0.1.0
description:
  - Opens the backup on the machine that runs the playbook, compares it with the cluster of the site, and encrypts it
    again to an identity of this run. Verifies the control plane of the task, seals that identity to the verified state,
    and sends both. M(attested.kubernetes.etcd_snapshot) restores it there.
  - The identity of the recovery kit stays on this machine, where the content is in clear in memory only.
  - The restored cluster has one member. The policy in it may be older than that of the site; until the site's policy is
    applied (playbook C(policy)), the key service refuses every ticket under an older one.
  - Fails with C(BACKUP_DAMAGED), C(BACKUP_OTHER_CLUSTER), C(FILE_VERSION_UNKNOWN), C(KIT_KEY_WRONG) or
    C(KIT_KEY_UNUSABLE), with the reason of the check that refused the machine, with C(ROLE_NOT_REGISTERED) for a
    worker, and as M(attested.kubernetes.etcd_snapshot) does.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  backup:
    description: The file that M(attested.kubernetes.etcd_backup) wrote.
    type: path
    required: true
  identity_file:
    description: File with identities of age, of which one opens the backup.
    type: path
    required: true
  confirm_healthy:
    description: Lets it replace an etcd that is healthy (C(RESTORE_CLUSTER_HEALTHY)).
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
    details: It opens the whole backup, verifies the machine, and sends nothing.
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
  description: What the backup says of itself, as M(attested.kubernetes.etcd_snapshot) returns it.
  returned: success
  type: dict
  sample: {"policy_generation": 3, "revision": 48211}
profile:
  description: The profile that the machine matches.
  returned: success
  type: str
  sample: r650-debian13
"""
