#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: policy_record
short_description: Hand the site's signed policy to a control plane
version_added: 0.1.0
description:
  - Gives the policy to the key service of this control plane, over a socket that is root's alone. The key service
    checks the signature, compares the policy with its own record outside etcd, and records it before it answers.
  - This is how a record begins, and how it begins anew after C(POLICY_ROLLED_BACK). What is left of an earlier record
    still counts, so the policy may not be older, and must sign all revocations that the record holds.
  - Fails with C(POLICY_SIGNATURE), C(POLICY_ROLLED_BACK), C(MANIFEST_INVALID), C(TPM_NV_FOREIGN) or
    C(KEY_SERVICE_UNREACHABLE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  policy:
    description: The signed C(AttestationPolicy), as YAML or JSON; M(attested.kubernetes.attestation_policy) makes it.
    type: str
    required: true
  socket:
    description: Root's own socket of the key service.
    type: path
    default: /run/attested/key-service-policy.sock
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Begin the record, or let it follow
  attested.kubernetes.policy_record:
    policy: "{{ next_policy.policy }}"

- name: Say whether it would change
  attested.kubernetes.policy_record:
    policy: "{{ next_policy.policy }}"
  check_mode: true

- name: Use a socket at another place
  attested.kubernetes.policy_record:
    policy: "{{ lookup('ansible.builtin.file', 'policy.json') }}"
    socket: /run/test/policy.sock
"""

RETURN = r"""
generation:
  description: The generation that this control plane has recorded, or would record.
  returned: success
  type: int
  sample: 7
revoked:
  description: Endorsement keys that it knows as revoked.
  returned: success, without check mode
  type: list
  elements: str
  sample: []
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, Form, run_form
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.policy_record import run_record

SPEC = ArgumentSpec(
    options={
        "policy": {"type": "str", "required": True},
        "socket": {"type": "path", "default": "/run/attested/key-service-policy.sock"},
    }
)
FORM = Form(spec=SPEC, run=run_record, libraries=("yaml", "google.protobuf"))


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
