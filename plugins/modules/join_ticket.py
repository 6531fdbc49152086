#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: join_ticket
short_description: Fetch a ticket by proving what this machine is and has booted
version_added: 0.1.0
description:
  - Asks the join services of the cluster, one after the other, until one answers. It checks that the service is
    certified by the pinned join CA, answers its challenge, and sends evidence that is bound to this very exchange.
  - The ticket is kept in memory, readable for root only, behind a handle; no secret of it is ever returned.
  - M(attested.kubernetes.kubeadm_node) does this by itself; use this module where something has to happen in between.
  - Before the machine is locked this may be repeated at will.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: V(present) fetches a ticket, V(absent) forgets the one behind O(handle).
    type: str
    choices: [present, absent]
    default: present
  handle:
    description: Handle of the ticket to forget; one that is unknown changes nothing.
    type: str
  role:
    description: What the machine asks to become; its identity must say the same.
    type: str
    choices: [control-plane, worker]
    default: worker
  wait_seconds:
    description: How long to ask again for a ticket that cannot be had yet.
    type: int
    default: 0
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - Each fetch counts as a change, though the service answers the same key of the same machine with the same ticket.
"""

EXAMPLES = r"""
- name: Fetch a ticket
  attested.kubernetes.join_ticket:
  register: fetched

- name: Wait for a control plane that is starting
  attested.kubernetes.join_ticket:
    wait_seconds: 120
  register: fetched

- name: Delete the ticket
  attested.kubernetes.join_ticket:
    state: absent
    handle: "{{ fetched.handle }}"
"""

RETURN = r"""
handle:
  description: What to give to M(attested.kubernetes.kubeadm_node) in this boot.
  returned: when O(state=present) and not in check mode
  type: str
  sample: 3f2504e04f8911d39a0c0305e82c3301
node_name:
  description: The name that the machine's identity has.
  returned: when O(state=present) and not in check mode
  type: str
  sample: w-1
role:
  description: What the identity may become.
  returned: when O(state=present) and not in check mode
  type: str
  sample: worker
expires:
  description: Until when the ticket is good, ISO 8601.
  returned: when O(state=present) and not in check mode
  type: str
  sample: "2026-11-21T12:15:00+00:00"
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)

SPEC = node_config_spec().merged(
    ArgumentSpec(
        options={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "handle": {"type": "str", "no_log": False},
            "role": {"type": "str", "choices": ["control-plane", "worker"], "default": "worker"},
            "wait_seconds": {"type": "int", "default": 0},
        },
        required_if=(("state", "absent", ("handle",)),),
    )
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.client:run_ticket"), libraries=("cryptography", "grpc", "yaml"))


if __name__ == "__main__":
    main()
