#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_info
short_description: Read what a node has of the keys that a rotation replaces
version_added: 0.1.0
description:
  - For V(authorities), which cluster CAs the kubelet of this node trusts and which one signed its certificate. On a
    control plane also which keys sign, which CAs its files trust, which CAs signed its certificates, which successors
    are staged, and whether every component runs with these files. A key is named by 16 digits of the hash of its
    public half.
  - For V(encryption_key), the names and fingerprints of the keys in C(/etc/kubernetes/attested/encryption.yaml), and
    whether the API server of this control plane uses that very file.
  - For V(master_secret), which versions the key service holds, whether it was started with them, and under which
    version the state disk is, as the record in the open volume says of the header that the disk has now. A version is
    named by its number and the first digits of its fingerprint.
  - With O(scope=cluster), which nodes the cluster has, and for V(encryption_key) under which keys etcd has its
    Secrets. Of a Secret only the words before its ciphertext are read.
  - Never returns a private key or a secret.
  - Fails with V(AUTHORITY_UNUSABLE), V(KUBECONFIG_MALFORMED), V(FILE_UNUSABLE), V(ENCRYPTION_MALFORMED),
    V(ENCRYPTION_FOREIGN) for a file that init or a rotation did not write, V(CONTROL_PLANE_MANIFEST_MALFORMED),
    V(ETCD_UNREACHABLE), V(KUBECTL_FAILED), V(STATE_DISK_OPTION), V(STATE_DISK_RECORD), or the code of a header
    (V(LUKS_DAMAGED) and others) that is not one.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  scope:
    description: What to read. V(cluster) needs a control plane.
    type: str
    choices: [node, cluster]
    default: node
  device:
    description: For V(master_secret), the state disk of this machine, by its path below C(/dev/disk/by-id). None
      where it has none.
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

- name: Stop where the kubelet has a certificate of a CA that it does not trust
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
  returned: for a node
  type: str
  sample: cp-1
kubelet:
  description:
    - The cluster CAs that the kubelet trusts as client and as server (C(trusted)), as either of them (C(named)), and
      the one that signed its certificate (C(issued)).
  returned: for authorities
  type: dict
  sample: {"name": "cp-1", "trusted": ["9f2c1d5e9f2c1d5e"], "named": ["9f2c1d5e9f2c1d5e"], "issued": "9f2c1d5e9f2c1d5e"}
plane:
  description:
    - What a control plane holds. For authorities by authority, empty on a worker. For the master secret the versions,
      the current one first (C(names)), and whether its key service was started with them (C(taken)), null on a
      worker.
  returned: for authorities and master_secret
  type: dict
  sample: {"name": "cp-1", "signers": {"cluster": "9f2c1d5e9f2c1d5e"}, "taken": true}
known:
  description: The public halves on a control plane by name, PEM.
  returned: for authorities
  type: dict
  sample: {"9f2c1d5e9f2c1d5e": "-----BEGIN CERTIFICATE-----..."}
cluster_ca:
  description: The cluster CAs that this node trusts, PEM.
  returned: for authorities
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
keys:
  description: Name and fingerprint of each key, in the order of the file. Secrets are written with the first.
  returned: for encryption_key
  type: list
  elements: dict
  sample: [{"name": "key-2-9f2c1d5e9f2c1d5e", "fingerprint": "9f2c1d5e9f2c1d5e"}]
in_force:
  description: Name of the key that Secrets are written with, V(identity) where they are written in clear.
  returned: for encryption_key
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
taken:
  description: Whether the API server uses the file as it is now.
  returned: for encryption_key
  type: bool
  sample: true
clear_first:
  description: Whether Secrets are written in clear.
  returned: for encryption_key
  type: bool
  sample: false
disk:
  description: The version that the state disk is under. Empty where it is between two of them, not open, or under no
    named version. Null without a disk.
  returned: for master_secret
  type: str
  sample: 2-9f2c1d5e9f2c1d5e
nodes:
  description: Names of the nodes of the cluster.
  returned: for the cluster
  type: list
  elements: str
  sample: [cp-1, w-1]
control_planes:
  description: Names of its control planes.
  returned: for the cluster
  type: list
  elements: str
  sample: [cp-1]
now:
  description: Time of this machine, ISO 8601.
  returned: for the cluster
  type: str
  sample: "2026-11-22T12:00:00+00:00"
stored:
  description: How many Secrets etcd has under each key, under V(identity) those in clear.
  returned: for the cluster
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
