#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_admission
short_description: Approve, refuse or revoke a machine in the cluster
version_added: 0.1.0
description:
  - Writes the admin's word on a machine into its C(NodeIdentity), with the kubectl of this control plane. It counts
    from the next decision of every key service on.
  - There is no way back from V(Revoked) by this module; the signed policy takes back what was a mistake
    (M(attested.kubernetes.attestation_policy)). A revoked machine gets no ticket, no renewal and no key any more, and
    whatever its node's user writes is denied by the API server.
  - Whether a control plane is approved says the signed policy of the site alone, so one is refused with
    V(IDENTITY_NEEDS_SIGNATURE); the only control plane cannot be revoked (V(IDENTITY_LAST_CONTROL_PLANE)).
  - Fails with V(IDENTITY_NOT_FOUND) where no machine, or more than one, has that name.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Name of the identity (C(ek-) and 20 digits), or of the node that it is.
    type: str
    required: true
  admission:
    description: What the machine shall be.
    type: str
    choices: [Approved, Refused, Revoked]
    required: true
  node_name:
    description: Name of the node that a waiting machine becomes. Of any other machine it is immutable.
    type: str
    default: ""
  replaced_by:
    description: Of a machine that is revoked, the identity that takes its node's name and its disk.
    type: str
    default: ""
  compromised:
    description:
      - Whether somebody else may have what the machine held. A worker held nothing of the cluster's.
      - Of a control plane that fails with V(HELD_KEYS_NOT_ROTATED) before anything is changed, unless O(authority) says
        what is rotated then.
    type: bool
    default: false
  authority:
    description:
      - Of a control plane that is revoked as O(compromised), the name of the cluster CA that it held, which is rotated
        afterwards (M(attested.kubernetes.rotation_info) says it). It is written into the identity once, so that a
        repetition rotates no other one.
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
  description: Name of the node that it is.
  returned: success
  type: str
  sample: w-1
role:
  description: Its registered role.
  returned: success
  type: str
  sample: worker
ek_sha256:
  description: SHA-256 of its endorsement key.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_alias:
  description: SHA-256 of the chip's second endorsement key, where that is known.
  returned: success
  type: str
  sample: ""
known_by:
  description: How the machine became known.
  returned: success
  type: str
  sample: console fingerprint
before:
  description: Its admission before.
  returned: success
  type: str
  sample: Approved
admission:
  description: Its admission now.
  returned: success
  type: str
  sample: Revoked
disk_id:
  description: The disk that it was assigned, if any.
  returned: success
  type: str
  sample: 7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69
certificate_until:
  description:
    - When every certificate that came with a ticket has ended; empty if it never got one.
    - The kubelet of the first control plane began with one of kubeadm, of a year, which may outlive this.
  returned: success
  type: str
  sample: "2026-11-24T12:00:00+00:00"
held:
  description: What a control plane held of the cluster's, which stays true of the machine; empty for a worker.
  returned: success
  type: list
  elements: dict
  contains:
    what:
      description: What it is.
      type: str
    where:
      description: Where it lay.
      type: str
    could:
      description: What its holder could still do.
      type: str
    ends:
      description: When that ends by itself.
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
