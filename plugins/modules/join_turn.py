#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: join_turn
short_description: Prevent control planes from joining for a while
version_added: 0.2.0
description:
  - Takes or renews, for ten minutes, the turn (a Lease) that lets one control plane join at a time. No control plane
    gets a ticket meanwhile. A turn that is not released expires.
  - The module fails with V(CONTROL_PLANE_JOIN_BUSY) while a control plane joins. It fails with V(KUBECTL_FAILED) if
    kubectl fails or another client took the turn at the same time.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: V(present) takes or renews the turn, V(absent) releases it.
    type: str
    choices: [present, absent]
    default: present
  holder:
    description: Name of the holder. Machines that wait show it.
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
    details: Taking the turn does not change the cluster. A renewed turn is not reported as a change.
"""

EXAMPLES = r"""
- name: Keep control planes from joining
  attested.kubernetes.join_turn:
    holder: rotate-encryption-key

- name: Check whether a control plane joins now
  attested.kubernetes.join_turn:
    holder: rotate-encryption-key
  check_mode: true

- name: Let control planes join again
  attested.kubernetes.join_turn:
    state: absent
    holder: rotate-encryption-key
"""

RETURN = r"""
{}
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_turn import run_join_turn  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "holder": {"type": "str", "required": True},
    }
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.join_turn:run_join_turn"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
