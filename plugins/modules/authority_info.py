#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: authority_info
short_description: Say whom a node believes, and which authorities a control plane holds
version_added: 0.1.0
description:
  - Reads which cluster CAs the kubelet of this node believes and which one signed for it. On a control plane also which
    keys sign there as cluster CA, front-proxy CA, etcd"s CA and for service accounts, whom its files believe, who
    signed the certificates that it shows, which successors lie beside the files, and whether everything runs with
    them. A key is called by 16 digits of the hash of its public half; no private half is ever returned.
  - Fails with V(AUTHORITY_UNUSABLE), V(KUBECONFIG_MALFORMED) or V(FILE_UNUSABLE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.node_config
"""

EXAMPLES = r"""
- name: Read whom this node believes
  attested.kubernetes.authority_info:
  register: authorities

- name: Show which cluster CA is in force
  ansible.builtin.debug:
    var: authorities.plane.signers.cluster
  when: authorities.plane | length > 0

- name: Stop where the kubelet shows a certificate of somebody whom it does not believe
  ansible.builtin.assert:
    that: authorities.kubelet.issued in authorities.kubelet.trusted
"""

RETURN = r"""
node:
  description: Name of the node in its configuration.
  returned: success
  type: str
  sample: cp-1
kubelet:
  description:
    - The cluster CAs that the kubelet believes as client and as server (C(trusted)), as either of them (C(named)), and
      the one that signed its certificate (C(issued)).
  returned: success
  type: dict
  sample: {"name": "cp-1", "trusted": ["9f2c1d5e9f2c1d5e"], "named": ["9f2c1d5e9f2c1d5e"], "issued": "9f2c1d5e9f2c1d5e"}
plane:
  description: What a control plane holds, by authority; empty on a worker.
  returned: success
  type: dict
  sample: {"name": "cp-1", "signers": {"cluster": "9f2c1d5e9f2c1d5e"}, "taken": true}
known:
  description: The public halves that lie on a control plane by name, PEM.
  returned: success
  type: dict
  sample: {"9f2c1d5e9f2c1d5e": "-----BEGIN CERTIFICATE-----..."}
cluster_ca:
  description: The cluster CAs that this node believes, PEM.
  returned: success
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.ca_rotation import run_authority_info

SPEC = ArgumentSpec(options={}).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_authority_info, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
