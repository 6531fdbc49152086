#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: join_ticket
short_description: Fetch a ticket with evidence of what this machine is and has booted
version_added: 0.2.0
description:
  - Sends requests to the join services of the cluster, one after the other, until one answers. The module verifies that
    the pinned join CA certified the service, answers its challenge, and sends evidence that is bound to this exchange.
  - The ticket is stored in memory behind a handle, readable by root only. The module never returns a secret of the
    ticket.
  - M(attested.kubernetes.kubeadm_node) fetches a ticket itself. Use this module if other tasks must run between the
    ticket and the join.
  - The module can be repeated until the machine is locked.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: V(present) fetches a ticket, V(absent) deletes the ticket of O(handle).
    type: str
    choices: [present, absent]
    default: present
  handle:
    description: Handle of the ticket to delete. An unknown handle changes nothing.
    type: str
  role:
    description: Requested role. The identity of the machine must have the same role.
    type: str
    choices: [control-plane, worker]
    default: worker
  wait_seconds:
    description: How long requests are retried while no ticket is available, in seconds.
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
      - Each fetch counts as a change, although the service sends the same ticket for the same key of the same machine.
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
  description: Handle for M(attested.kubernetes.kubeadm_node), valid in this boot.
  returned: when O(state=present) and not in check mode
  type: str
  sample: 3f2504e04f8911d39a0c0305e82c3301
node_name:
  description: Node name in the machine's identity.
  returned: when O(state=present) and not in check mode
  type: str
  sample: w-1
role:
  description: Role in the machine's identity.
  returned: when O(state=present) and not in check mode
  type: str
  sample: worker
expires:
  description: Time until which the ticket is valid, ISO 8601.
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
