#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_keys
short_description: Install the keys of a cluster that were sealed to this machine
version_added: 0.2.0
description:
  - Runs on the node for M(attested.kubernetes.cluster), which calls it. It has no other use.
  - Opens the box with the one-time key that is kept on the node, protects the keys with the TPM, and locks the machine
    to the cluster. A machine that already holds these keys is not changed.
  - The module fails with C(SEAL_UNOPENABLE), C(ANSWER_UNKNOWN), C(CLUSTER_ID_MISMATCH), C(STATE_CHANGED),
    C(NODELOCK_FOREIGN) or C(NODELOCK_OTHER_CLUSTER).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  handle:
    description: The handle that M(attested.kubernetes.attestation_info) returned with its answer.
    type: str
    required: true
  sealed:
    description: The box with the sealed keys, base64. Only this machine, in this boot, can open it.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Receive the keys (called by the action of attested.kubernetes.cluster)
  attested.kubernetes.cluster_keys:
    handle: "{{ answer.handle }}"
    sealed: "{{ box }}"

- name: Check whether the keys can be decrypted
  attested.kubernetes.cluster_keys:
    handle: "{{ answer.handle }}"
    sealed: "{{ box }}"
  check_mode: true

- name: Receive the keys with a slow TPM
  attested.kubernetes.cluster_keys:
    handle: "{{ answer.handle }}"
    sealed: "{{ box }}"
    tpm_timeout_seconds: 60
"""

RETURN = r"""
cluster_id:
  description: The cluster that the keys belong to, 64 hexadecimal digits.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
steps:
  description: Steps that were run, each with its time in seconds. Empty if nothing had to be done.
  returned: success
  type: list
  elements: dict
  sample: [{"name": "lock", "title": "Lock the machine to its cluster", "seconds": 0.012}]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
    tpm_timeout_spec,
)

SPEC = ArgumentSpec(
    options={
        "handle": {"type": "str", "required": True},
        "sealed": {"type": "str", "required": True},
    }
).merged(node_config_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.member:run_cluster_keys"), libraries=("cryptography", "google.protobuf", "yaml"))


if __name__ == "__main__":
    main()
