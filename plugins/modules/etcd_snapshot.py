#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_snapshot
short_description: Save or restore an encrypted snapshot of etcd on a control plane
version_added: 0.2.0
description:
  - With O(state=saved) the module saves a snapshot of the etcd member of this control plane, and starts an etcd from it
    on loopback. If this etcd answers with the revision of the snapshot and contains a Kubernetes cluster, the module
    encrypts the snapshot to recipients of age, with a manifest before it.
  - With O(state=restored) the module checks a backup in the same way, and stops the static pods of etcd and the API
    server. Then it creates a cluster with one member and a raised revision from the backup, and starts both.
  - With O(state=stopped) the module stops the static pods of etcd and the API server of a control plane that is not
    part of the restored cluster. That control plane must be reset and must join again.
  - The snapshot is in clear text in C(/var/lib/etcd) only, next to the data of etcd, and is removed at the end.
  - Usually called by M(attested.kubernetes.etcd_backup), which fetches the file, and by
    M(attested.kubernetes.etcd_restoration), which sends it.
  - Requires C(etcd), C(etcdctl) and C(etcdutl), which the bundle installs on control planes, and the Python package
    C(pyrage).
  - The module fails with V(ETCD_MEMBER_UNHEALTHY), V(BACKUP_UNPROVEN), V(KIT_KEY_UNUSABLE), V(COMMAND_MISSING) or
    V(COMMAND_FAILED). With O(state=restored) it also fails with V(RESTORE_CLUSTER_HEALTHY), V(BACKUP_DAMAGED),
    V(BACKUP_OTHER_CLUSTER), V(KUBELET_NOT_RUNNING) or V(CONTROL_PLANE_COMPONENT_UNHEALTHY).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description:
      - V(saved) writes a backup, V(restored) replaces the data of etcd with a backup, V(stopped) stops etcd and the API
        server.
    type: str
    choices: [saved, restored, stopped]
    default: saved
  path:
    description:
      - Path of the encrypted file. With O(state=saved) its directory must exist, and every user can read the file.
    type: path
  recipients:
    description: Recipients of age, C(age1...). Each of them can decrypt the file.
    type: list
    elements: str
  handle:
    description: Handle of the answer whose key opens O(sealed), with O(state=restored).
    type: str
  sealed:
    description: The age identity that decrypts the backup, sealed to this machine, base64.
    type: str
  confirm_healthy:
    description: If true, O(state=restored) may replace an etcd that is healthy.
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.etcd
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: partial
    details: Each run with O(state=saved) or O(state=restored) does its work again.
"""

EXAMPLES = r"""
- name: Write a snapshot for one recipient
  attested.kubernetes.etcd_snapshot:
    path: /var/tmp/backup/etcd.age
    recipients: [age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z]

- name: Stop etcd and the API server
  attested.kubernetes.etcd_snapshot:
    state: stopped
"""

RETURN = r"""
manifest:
  description: Manifest of the backup, which the file contains too. Empty in check mode and with O(state=stopped).
  returned: success
  type: dict
  sample:
    format: attested-etcd-backup/v1
    taken: "2026-11-25T23:15:00Z"
    node: cp-1
    cluster_id: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
    policy_generation: 3
    revision: 48211
    kubernetes_version: 1.35.4
    authorities: {ca: [9f2c1d5e9f2c1d5e], etcd-ca: [0a4f5e2a7c11d58f], front-proxy-ca: [77aa01b2c3d4e5f6]}
    size: 20983840
    sha256: 65ca0d5f4a2b1c3d4e5f60718293a4b5c6d7e8f9a0b1c2d3e4f5061728394a5b
file_sha256:
  description: SHA-256 of the encrypted file; empty in check mode.
  returned: with O(state=saved)
  type: str
  sample: 1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    etcd_spec,
    node_config_spec,
    run_module,
)

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": ["saved", "restored", "stopped"], "default": "saved"},
        "path": {"type": "path"},
        "recipients": {"type": "list", "elements": "str"},
        "handle": {"type": "str", "no_log": False},
        "sealed": {"type": "str", "no_log": False},
        "confirm_healthy": {"type": "bool", "default": False},
    },
    required_together=(("handle", "sealed"),),
    required_if=(("state", "saved", ("path", "recipients")),),
).merged(etcd_spec(), node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(
        SPEC, installed("node.etcd_snapshot:run"), libraries=("cryptography", "google.protobuf", "pyrage", "yaml")
    )


if __name__ == "__main__":
    main()
