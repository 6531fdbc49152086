#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret_versions
short_description: Take versions of the master secret that were sealed to this control plane
version_added: 0.1.0
description:
  - The node's half of M(attested.kubernetes.master_secret_share), which calls it; there is no other use.
  - Opens the box with the one-time key that waits on the node, keeps the versions under the TPM, sealed to the judged
    registers and to what the register of the node lock held before this boot's lock, and starts the key service anew
    unless it runs with them.
  - Fails with V(SEAL_UNOPENABLE), V(ANSWER_UNKNOWN), V(CLUSTER_ID_MISMATCH) for another cluster's or for other values
    than those that are carried along, V(KEYS_ABSENT), V(NODELOCK_NOT_HELD) or V(KEY_SERVICE_UNREACHABLE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  handle:
    description: The handle that M(attested.kubernetes.attestation_info) returned with its answer.
    type: str
    required: true
  sealed:
    description: The box, base64; only this machine, in this boot, can open it.
    type: str
    required: true
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
"""

EXAMPLES = r"""
- name: Take them (the action of attested.kubernetes.master_secret_share does this)
  attested.kubernetes.master_secret_versions:
    handle: "{{ answer.handle }}"
    sealed: "{{ box }}"

- name: Only see whether the box opens
  attested.kubernetes.master_secret_versions:
    handle: "{{ answer.handle }}"
    sealed: "{{ box }}"
  check_mode: true

- name: On a slow TPM
  attested.kubernetes.master_secret_versions:
    handle: "{{ answer.handle }}"
    sealed: "{{ box }}"
    tpm_timeout_seconds: 60
"""

RETURN = r"""
names:
  description: The versions that it has now, the leading one first.
  returned: success, not in check mode
  type: list
  elements: str
  sample: [2-9f2c1d5e9f2c1d5e, 1-0a4f5e2a7c11d58f]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.master_versions import run_take

SPEC = ArgumentSpec(
    options={
        "handle": {"type": "str", "required": True},
        "sealed": {"type": "str", "required": True},
    }
).merged(node_config_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_take, libraries=("cryptography", "google.protobuf", "yaml"))


if __name__ == "__main__":
    main()
