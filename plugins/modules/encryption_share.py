#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encryption_share
short_description: Seal keys for Secrets at rest to other control planes
version_added: 0.1.0
description:
  - Offers a one-time key, to which the admin's machine seals whom it has judged
    (M(attested.kubernetes.encryption_recipient)); then seals keys of this control plane to those machines, in the state
    that was judged. What is returned nobody else can open.
  - Fails with V(ENCRYPTION_KEY_MISSING), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE), V(OPTION_INVALID), V(NOT_TMPFS) or
    V(SWAP_ACTIVE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  handle:
    description: Which offer O(orders) are sealed to.
    type: str
  orders:
    description: The sealed orders by name of control plane. Without them a one-time key is offered.
    type: dict
  kubeconfig:
    description: Kubeconfig on this machine with the rights for it.
    type: path
    default: /etc/kubernetes/admin.conf
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details: It writes nothing but the one-time key, which lies in memory until it is used.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Offer a one-time key
  attested.kubernetes.encryption_share:
  register: offered

- name: Seal to the one that was judged
  attested.kubernetes.encryption_share:
    handle: "{{ offered.handle }}"
    orders:
      cp-2: "{{ hostvars['cp-2'].recipient.order }}"
  register: share

- name: Take it there
  attested.kubernetes.encryption_keys:
    order: [key-1, key-2-9f2c1d5e9f2c1d5e]
    handle: "{{ hostvars['cp-2'].recipient.handle }}"
    sealed: "{{ share.boxes['cp-2'] }}"
  delegate_to: cp-2
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

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.encryption_rotation import run_encryption_share

SPEC = ArgumentSpec(
    options={
        "handle": {"type": "str", "no_log": False},
        "orders": {"type": "dict"},
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
    },
    required_together=(("handle", "orders"),),
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_encryption_share, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
