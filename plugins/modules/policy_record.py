#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: policy_record
short_description: Read or update a control plane's record of the site's signed policy
version_added: 0.2.0
description:
  - The key service of a control plane keeps a record of the policy outside etcd. This module connects to the key
    service over a socket that only root can use.
  - With O(policy) the module sends the signed policy. The key service verifies the signature, compares the policy with
    its record, and updates the record before it answers. This creates a record, and creates it again after
    C(POLICY_ROLLED_BACK). An earlier record still limits the update. The policy must not be older than the record, and
    must contain all of its revocations.
  - Without O(policy) the module changes nothing. It reads the record from the key service, and the signed policy and
    the identities with the kubectl of this control plane. The module does not fail if the key service does not answer.
    RV(reason) then has the code.
  - The module fails with C(POLICY_SIGNATURE), C(POLICY_ROLLED_BACK), C(MANIFEST_INVALID), C(TPM_NV_FOREIGN) or
    C(KEY_SERVICE_UNREACHABLE). Without O(policy) it fails with C(KUBECTL_FAILED) if the API server does not answer.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  policy:
    description: Signed C(AttestationPolicy) as YAML or JSON, from M(attested.kubernetes.attestation_policy).
    type: str
  socket:
    description: Path of the key service's socket that only root can use.
    type: path
    default: /run/attested/key-service-policy.sock
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Update the record
  attested.kubernetes.policy_record:
    policy: "{{ next_policy.policy }}"

- name: Check whether the record would change
  attested.kubernetes.policy_record:
    policy: "{{ next_policy.policy }}"
  check_mode: true

- name: Read the record
  attested.kubernetes.policy_record:
  register: record

- name: Fail if the key service refuses every machine
  ansible.builtin.fail:
    msg: "{{ record.reason }}: {{ record.message }}"
  when: record.reason | length > 0
"""

RETURN = r"""
generation:
  description:
    - With O(policy), the generation that this control plane has recorded, or in check mode would record.
    - Without O(policy), the highest generation that this control plane has seen, 0 without a usable record.
  returned: success
  type: int
  sample: 7
revoked:
  description: Endorsement keys that the record lists as revoked, even if the record is not usable.
  returned: success, but not in check mode with O(policy)
  type: list
  elements: str
  sample: []
reason:
  description: Reason code with which the key service refuses every machine. Empty if it does not.
  returned: without O(policy)
  type: str
  sample: POLICY_ROLLED_BACK
message:
  description: Explanation of RV(reason) with the expected and the found value.
  returned: without O(policy)
  type: str
  sample: expected generation 7 of the policy or a later one, got 5
policy:
  description: The C(AttestationPolicy) of the API, not verified. Empty without a policy.
  returned: without O(policy)
  type: dict
  sample: {"kind": "AttestationPolicy"}
identities:
  description:
    - All identities, each with the id of its disk (empty without a disk), the register values of its last
      attestation, and the digest of what a site applied to it.
  returned: without O(policy)
  type: list
  elements: dict
  sample:
    - node: w-1
      ek_sha256: 9f2c
      ek_alias: ""
      admission: Approved
      applied: 5d41
      phase: Joined
      disk_id: 81111111-2222-4333-8444-555555555555
      profile: r650-debian13
      registers: {"7": "65ca"}
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    Form,
    kubectl_spec,
    run_form,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.policy_record import run_record  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "policy": {"type": "str"},
        "socket": {"type": "path", "default": "/run/attested/key-service-policy.sock"},
    }
).merged(kubectl_spec())
FORM = Form(spec=SPEC, run=installed("kubeadm.policy_record:run_record"), libraries=("yaml", "google.protobuf"))


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
