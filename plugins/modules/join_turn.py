#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: join_turn
short_description: Keep control planes from joining for a while
version_added: 0.1.0
description:
  - Takes the turn by which one control plane joins at a time, or renews it for ten minutes; as long no control plane
    gets a ticket. One that is not given back ends by itself.
  - Fails with V(CONTROL_PLANE_JOIN_BUSY) while a control plane joins, and with V(KUBECTL_FAILED), also where somebody
    else was faster.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: Whether to have the turn, or to give it back.
    type: str
    choices: [present, absent]
    default: present
  holder:
    description: Who has it, shown to machines that have to wait.
    type: str
    required: true
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
    details: To have the turn is no change of the cluster; a renewed one is not reported as one.
"""

EXAMPLES = r"""
- name: Keep control planes from joining
  attested.kubernetes.join_turn:
    holder: rotate-encryption-key

- name: Only see whether one joins now
  attested.kubernetes.join_turn:
    holder: rotate-encryption-key
  check_mode: true

- name: Let them join again
  attested.kubernetes.join_turn:
    state: absent
    holder: rotate-encryption-key
"""

RETURN = r"""
{}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_turn import run_join_turn

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "holder": {"type": "str", "required": True},
    }
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_join_turn, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
