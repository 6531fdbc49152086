#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: policy_record_info
short_description: Read what a control plane knows of the policy
version_added: 0.1.0
description:
  - Reads the record outside etcd through the key service of this control plane, and the signed policy and the
    identities with the kubectl of this control plane.
  - A key service that does not answer is no failure; RV(reason) says so.
  - Fails with V(KUBECTL_FAILED) where the API server does not answer.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  kubeconfig:
    description: Kubeconfig on this machine with the rights for it.
    type: path
    default: /etc/kubernetes/admin.conf
  socket:
    description: Root's own socket of the key service.
    type: path
    default: /run/attested/key-service-policy.sock
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: Read the record
  attested.kubernetes.policy_record_info:
  register: record

- name: Stop where everyone is refused
  ansible.builtin.fail:
    msg: "{{ record.reason }}: {{ record.message }}"
  when: record.reason | length > 0

- name: Show which generation is recorded
  ansible.builtin.debug:
    var: record.generation
"""

RETURN = r"""
generation:
  description: The highest generation that was seen, 0 without a usable record.
  returned: success
  type: int
  sample: 7
revoked:
  description: Endorsement keys that are known as revoked, also by a record that cannot be used.
  returned: success
  type: list
  elements: str
  sample: []
reason:
  description: Why everyone is refused, empty when nobody is for this.
  returned: success
  type: str
  sample: POLICY_ROLLED_BACK
message:
  description: What was expected and what came.
  returned: success
  type: str
  sample: expected generation 7 of the policy or a later one, got 5
policy:
  description: The C(AttestationPolicy) of the API, not verified; empty without one.
  returned: success
  type: dict
  sample: {"kind": "AttestationPolicy"}
identities:
  description:
    - Each identity, with the id that was assigned to its disk (empty without one) and the values that were judged last.
  returned: success
  type: list
  elements: dict
  sample:
    - node: w-1
      ek_sha256: 9f2c
      ek_alias: ""
      admission: Approved
      phase: Joined
      disk_id: 81111111-2222-4333-8444-555555555555
      profile: r650-debian13
      registers: {"7": "65ca"}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.policy_record import run_record_info

SPEC = ArgumentSpec(
    options={
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
        "socket": {"type": "path", "default": "/run/attested/key-service-policy.sock"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_record_info, libraries=("yaml", "google.protobuf"))


if __name__ == "__main__":
    main()
