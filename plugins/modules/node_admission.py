#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_admission
short_description: Approve, refuse or revoke a machine in the cluster
version_added: 0.2.0
description:
  - Writes the admin's decision about a machine into its C(NodeIdentity), with the kubectl of this control plane. Every
    key service uses it from its next decision on.
  - This module cannot change V(Revoked) back. A mistaken revocation is withdrawn by the signed policy
    (M(attested.kubernetes.attestation_policy)). A revoked machine gets no ticket, no renewal and no key any more, and
    the API server denies all writes of its node's user.
  - Only the signed policy of the site approves a control plane. The module fails with V(IDENTITY_NEEDS_SIGNATURE) if a
    control plane is to be approved, and with V(IDENTITY_LAST_CONTROL_PLANE) if the only control plane is to be revoked.
  - The module fails with V(IDENTITY_NOT_FOUND) if no machine or more than one machine has the name.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Name of the identity (C(ek-) and 20 digits), or name of its node.
    type: str
    required: true
  admission:
    description: Desired admission of the machine.
    type: str
    choices: [Approved, Refused, Revoked]
    required: true
  node_name:
    description: Name of the node that a waiting machine becomes. It is immutable for any other machine.
    type: str
    default: ""
  replaced_by:
    description: For a revoked machine, the identity that gets its node's name and its disk.
    type: str
    default: ""
  compromised:
    description:
      - If true, another party may have what the machine held. A worker holds no keys of the cluster.
      - For a control plane the module fails with V(HELD_KEYS_NOT_ROTATED), and changes nothing, unless O(authority)
        names the CA to rotate.
    type: bool
    default: false
  authority:
    description:
      - For a control plane that is revoked as O(compromised), the name of the cluster CA that it held and that is
        rotated afterwards. M(attested.kubernetes.rotation_info) returns the name. It is written into the identity once,
        so that a repeated run rotates no other CA.
    type: str
    default: ""
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Approve a refused machine
  attested.kubernetes.node_admission:
    name: w-1
    admission: Approved

- name: Show the changes of a revocation
  attested.kubernetes.node_admission:
    name: w-1
    admission: Revoked
  check_mode: true
  diff: true

- name: Revoke a machine by its identity
  attested.kubernetes.node_admission:
    name: ek-9f2c1d5e9f2c1d5e9f2c
    admission: Revoked
"""

RETURN = r"""
identity:
  description: Name of the identity.
  returned: success
  type: str
  sample: ek-9f2c1d5e9f2c1d5e9f2c
node:
  description: Name of its node.
  returned: success
  type: str
  sample: w-1
role:
  description: Registered role of the machine.
  returned: success
  type: str
  sample: worker
ek_sha256:
  description: SHA-256 of the machine's endorsement key.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_alias:
  description: SHA-256 of the TPM's second endorsement key, if it is known.
  returned: success
  type: str
  sample: ""
known_by:
  description: How the machine became known.
  returned: success
  type: str
  sample: console fingerprint
before:
  description: Previous admission of the machine.
  returned: success
  type: str
  sample: Approved
admission:
  description: Present admission of the machine.
  returned: success
  type: str
  sample: Revoked
disk_id:
  description: Id of the disk that was assigned to the machine, if any.
  returned: success
  type: str
  sample: 7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69
certificate_until:
  description:
    - Time at which all certificates from tickets of the machine have expired. Empty if it never got a ticket.
    - The first certificate of the first control plane's kubelet is of kubeadm and valid for a year. It may expire
      later.
  returned: success
  type: str
  sample: "2026-11-24T12:00:00+00:00"
held:
  description:
    - What a control plane held of the cluster's keys. The list stays true after the revocation. Empty for a worker.
  returned: success
  type: list
  elements: dict
  contains:
    what:
      description: Name of the key or credential.
      type: str
    where:
      description: Where it was stored.
      type: str
    could:
      description: What its holder could still do.
      type: str
    ends:
      description: When this access ends without a further action.
      type: str
  sample: []
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admission import run_admission

SPEC = ArgumentSpec(
    options={
        "name": {"type": "str", "required": True},
        "admission": {"type": "str", "choices": ["Approved", "Refused", "Revoked"], "required": True},
        "node_name": {"type": "str", "default": ""},
        "replaced_by": {"type": "str", "default": ""},
        "compromised": {"type": "bool", "default": False},
        "authority": {"type": "str", "default": ""},
    }
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_admission)


if __name__ == "__main__":
    main()
