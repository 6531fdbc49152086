#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_share
short_description: Seal the new keys of a rotation to other control planes
version_added: 0.2.0
description:
  - Without O(orders) the module offers a one-time key. The admin's machine seals the list of verified machines to it
    (M(attested.kubernetes.rotation_recipient)).
  - With O(orders) the module seals keys of this control plane to those machines in the verified state. No other machine
    can open the result.
  - For V(authorities) all staged successors are sealed together, for V(encryption_key) the keys that each order names.
  - The module fails with V(OPTION_INVALID) for an order that does not name all authorities. It also fails with
    V(AUTHORITY_UNUSABLE), V(ENCRYPTION_KEY_MISSING), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE), V(NOT_TMPFS) or
    V(SWAP_ACTIVE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  kind:
    description: What is rotated. Versions of the master secret come from the admin's machine, not from a control plane.
    type: str
    choices: [authorities, encryption_key]
    required: true
  handle:
    description: Handle of the offer that O(orders) are sealed to.
    type: str
  orders:
    description: The sealed orders by control plane. If unset, a one-time key is offered.
    type: dict
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
    details: The module writes only the one-time key, which is in memory until it is used.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Offer a one-time key
  attested.kubernetes.rotation_share:
    kind: encryption_key
  register: offered

- name: Verify the receiving control plane
  attested.kubernetes.rotation_recipient:
    kind: encryption_key
    site: "{{ inventory_dir }}"
    profiles: [lab]
    names: [key-2-9f2c1d5e9f2c1d5e]
    offer: "{{ offered.offer }}"
  delegate_to: cp-2
  register: recipient

- name: Seal the key to the receiving control plane
  attested.kubernetes.rotation_share:
    kind: encryption_key
    handle: "{{ offered.handle }}"
    orders: {"cp-2": "{{ recipient.order }}"}
  register: share
"""

RETURN = r"""
handle:
  description: Handle of the one-time key.
  returned: without O(orders)
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
offer:
  description: Public key of the one-time key, base64.
  returned: without O(orders)
  type: str
  sample: nywdXp8sHV6fLB1enywdXp8sHV6fLB1enywdXp8sHV4=
boxes:
  description: Sealed keys by control plane, base64.
  returned: with O(orders)
  type: dict
  sample: {"cp-2": "CAESDA=="}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)

SPEC = ArgumentSpec(
    options={
        "kind": {"type": "str", "choices": ["authorities", "encryption_key"], "required": True},
        "handle": {"type": "str", "no_log": False},
        "orders": {"type": "dict"},
    },
    required_together=(("handle", "orders"),),
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.key_share:run_share"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
