#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_share
short_description: Seal the new keys of a rotation to other control planes
version_added: 0.1.0
description:
  - Offers a one-time key, to which the admin's machine seals the list of machines that it has verified
    (M(attested.kubernetes.rotation_recipient)). Then seals keys of this control plane to those machines, in the state
    that was verified. No other machine can open the result.
  - For V(authorities) these are the staged successors, all of them together; for V(encryption_key) the keys that each
    order names.
  - Fails with V(OPTION_INVALID) for an order of anything but all authorities, V(AUTHORITY_UNUSABLE),
    V(ENCRYPTION_KEY_MISSING), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE), V(NOT_TMPFS) or V(SWAP_ACTIVE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  kind:
    description: What is rotated. Versions of the master secret come from the admin's machine, not from a control plane.
    type: str
    choices: [authorities, encryption_key]
    required: true
  handle:
    description: Which offer O(orders) are sealed to.
    type: str
  orders:
    description: The sealed orders by name of control plane. Without them a one-time key is offered.
    type: dict
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
    details: It writes only the one-time key, which is kept in memory until it is used.
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

- name: Encrypt the key for it
  attested.kubernetes.rotation_share:
    kind: encryption_key
    handle: "{{ offered.handle }}"
    orders: {"cp-2": "{{ recipient.order }}"}
  register: share
"""

RETURN = r"""
handle:
  description: Handle of the one-time key.
  returned: without orders
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
offer:
  description: Its public half, base64.
  returned: without orders
  type: str
  sample: nywdXp8sHV6fLB1enywdXp8sHV6fLB1enywdXp8sHV4=
boxes:
  description: What was sealed, by control plane, base64.
  returned: with orders
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
