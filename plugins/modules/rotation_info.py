#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_info
short_description: Read which keys of a rotation a node has
version_added: 0.2.0
description:
  - For V(authorities), the module reads which cluster CAs the kubelet of this node trusts and which CA signed its
    certificate. On a control plane it also reads which keys sign, which CAs its files trust, which CAs signed its
    certificates, which successors are staged, and whether every component runs with these files. The name of a key is
    16 digits of the hash of its public key.
  - For V(encryption_key), the module reads the names and fingerprints of the keys in
    C(/etc/kubernetes/attested/encryption.yaml), and whether the API server of this control plane uses the present
    content of that file.
  - For V(master_secret), the module reads which versions the key service holds, whether it was started with them, and
    which version the state disk is under. The version of the disk is taken from the record in the open volume, if the
    record matches the present header of the disk. The name of a version is its number and the first digits of its
    fingerprint.
  - With O(scope=cluster), the module reads the names of the nodes, and for V(encryption_key) under which keys etcd
    stores Secrets. It reads only the prefix before the ciphertext of a Secret.
  - The module never returns a private key or a secret.
  - The module fails with V(AUTHORITY_UNUSABLE), V(KUBECONFIG_MALFORMED), V(FILE_UNUSABLE), V(ENCRYPTION_MALFORMED),
    V(CONTROL_PLANE_MANIFEST_MALFORMED), V(ETCD_UNREACHABLE), V(KUBECTL_FAILED), V(STATE_DISK_OPTION) or
    V(STATE_DISK_RECORD). It fails with V(ENCRYPTION_FOREIGN) if init or a rotation did not write the file, and with
    V(LUKS_DAMAGED) or a similar code for an invalid header.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  scope:
    description: What to read. V(cluster) needs a control plane.
    type: str
    choices: [node, cluster]
    default: node
  device:
    description:
      - For V(master_secret), path of the state disk of this machine, below C(/dev/disk/by-id). If unset, the machine
        has no state disk.
    type: path
  mount_point:
    description: Where the volume of O(device) is mounted.
    type: path
    default: /var/lib/attested/state
extends_documentation_fragment:
  - attested.kubernetes.rotation
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.kubectl
  - attested.kubernetes.node_config
"""

EXAMPLES = r"""
- name: Read which CAs this node trusts
  attested.kubernetes.rotation_info:
    kind: authorities
  register: found

- name: Fail if the kubelet does not trust the CA that signed its certificate
  ansible.builtin.assert:
    that: found.kubelet.issued in found.kubelet.trusted

- name: Read which encryption keys a control plane has
  attested.kubernetes.rotation_info:
    kind: encryption_key

- name: Read the versions of a machine with a state disk
  attested.kubernetes.rotation_info:
    kind: master_secret
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
"""

RETURN = r"""
node:
  description: Name of the node in its configuration.
  returned: if O(scope=node)
  type: str
  sample: cp-1
kubelet:
  description:
    - The cluster CAs that the kubelet trusts as client and as server (C(trusted)), those that it trusts as either of
      them (C(named)), and the CA that signed its certificate (C(issued)).
  returned: for authorities
  type: dict
  sample: {"name": "cp-1", "trusted": ["9f2c1d5e9f2c1d5e"], "named": ["9f2c1d5e9f2c1d5e"], "issued": "9f2c1d5e9f2c1d5e"}
plane:
  description:
    - What a control plane holds. For authorities a dictionary by authority, empty on a worker. For the master secret
      the versions, the current version first (C(names)), and whether its key service was started with them (C(taken)).
      Null on a worker.
  returned: for authorities and master_secret
  type: dict
  sample: {"name": "cp-1", "signers": {"cluster": "9f2c1d5e9f2c1d5e"}, "taken": true}
known:
  description: Public keys and certificates of a control plane by name, PEM.
  returned: for authorities
  type: dict
  sample: {"9f2c1d5e9f2c1d5e": "-----BEGIN CERTIFICATE-----..."}
cluster_ca:
  description: The cluster CAs that this node trusts, PEM.
  returned: for authorities
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
keys:
  description: Name and fingerprint of each key, in the order of the file. The first key encrypts Secrets.
  returned: for encryption_key
  type: list
  elements: dict
  sample: [{"name": "key-2-9f2c1d5e9f2c1d5e", "fingerprint": "9f2c1d5e9f2c1d5e"}]
in_force:
  description: Name of the key that encrypts Secrets, V(identity) if they are written in clear.
  returned: for encryption_key
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
taken:
  description: Whether the API server uses the present content of the file.
  returned: for encryption_key
  type: bool
  sample: true
clear_first:
  description: Whether Secrets are written in clear.
  returned: for encryption_key
  type: bool
  sample: false
disk:
  description:
    - Version that the state disk is under. Empty if the disk is between two versions, not open, or under no named
      version. Null without a disk.
  returned: for master_secret
  type: str
  sample: 2-9f2c1d5e9f2c1d5e
nodes:
  description: Names of the nodes of the cluster.
  returned: if O(scope=cluster)
  type: list
  elements: str
  sample: [cp-1, w-1]
control_planes:
  description: Names of the control planes of the cluster.
  returned: if O(scope=cluster)
  type: list
  elements: str
  sample: [cp-1]
now:
  description: Time of this machine, ISO 8601.
  returned: if O(scope=cluster)
  type: str
  sample: "2026-11-22T12:00:00+00:00"
stored:
  description: Number of Secrets in etcd under each key. V(identity) counts those in clear.
  returned: if O(scope=cluster)
  type: dict
  sample: {"key-1": 12}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    node_config_spec,
    rotation_spec,
    run_module,
)

SPEC = ArgumentSpec(
    options={
        "scope": {"type": "str", "choices": ["node", "cluster"], "default": "node"},
        "device": {"type": "path"},
        "mount_point": {"type": "path", "default": "/var/lib/attested/state"},
    }
).merged(rotation_spec(), kubectl_spec(), node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.rotation:run_info"), libraries=("cryptography", "google.protobuf", "yaml"))


if __name__ == "__main__":
    main()
