#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: join_attempt_info
short_description: Read which machines were refused, and why
version_added: 0.1.0
description:
  - Reads the C(JoinAttempt) objects of the cluster with the kubectl of this control plane. The key service writes one a
    machine and reason, after the decision, and keeps the latest hundred for two weeks.
  - A machine that did not prove its endorsement key is a V(stranger); all strangers share one object a reason.
  - Nothing is decided from these objects, and an attempt may be missing here that the log of the key service tells.
  - Fails with V(KUBECTL_FAILED) where the API server does not answer.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  node:
    description: Only attempts of the machine that is registered as this node, or whose identity has this name.
    type: str
    default: ""
  reason:
    description: Only attempts that were refused by this reason code.
    type: str
    default: ""
  kubeconfig:
    description: Kubeconfig on this machine with the rights for it.
    type: path
    default: /etc/kubernetes/admin.conf
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: Read who was refused
  attested.kubernetes.join_attempt_info:
  register: refused

- name: Read why one node does not join
  attested.kubernetes.join_attempt_info:
    node: w-1
  register: refused_w_1

- name: Insist that no known node came with another TPM
  attested.kubernetes.join_attempt_info:
    reason: IDENTITY_NODE_TAKEN
  register: taken
  failed_when: taken.attempts | length > 0
"""

RETURN = r"""
attempts:
  description:
    - One row an object, the latest first.
    - C(command) is what to run next; it is empty of what an earlier release has written.
  returned: success
  type: list
  elements: dict
  sample:
    - name: ek-9f2c1d5e9f2c1d5e9f2c-pcr-mismatch
      machine: ek-9f2c1d5e9f2c1d5e9f2c
      node: w-1
      ek_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
      reason: PCR_MISMATCH
      message: "expected PCR 9 to be an allowed value, got another one"
      command: ansible-playbook attested.kubernetes.policy
      correlation_id: 4f1c2f0e
      count: 3
      first_seen: "2026-11-21T11:00:00Z"
      last_seen: "2026-11-21T12:00:00Z"
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.inventory import run_attempts

SPEC = ArgumentSpec(
    options={
        "node": {"type": "str", "default": ""},
        "reason": {"type": "str", "default": ""},
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_attempts)


if __name__ == "__main__":
    main()
