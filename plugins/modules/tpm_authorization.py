#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tpm_authorization
short_description: Send a machine the passwords of its TPM's hierarchies
version_added: 0.2.0
description:
  - Sends the auth values of the owner and endorsement hierarchies from the site's vaulted host variables to the
    machine. The machine holds them in a root-only file on tmpfs for the programs of this collection (modules, key
    service, witness, re-attestation). They are lost at the next reboot.
  - The values are read and sealed on the machine that runs the playbook, to a key that the machine created for this
    run. They are in no argument, environment, file on a disk, log or result. The machine tests them on its TPM before
    it stores them.
  - If the site sets neither variable, the machine is not contacted and nothing changes.
  - The module fails with C(TPM_HIERARCHY_AUTH) if the TPM refuses a value, and with C(OPTION_INVALID) for a value that
    is not a valid auth value. It also fails with C(NOT_TMPFS), C(SWAP_ACTIVE), C(ANSWER_UNKNOWN), C(SEAL_UNOPENABLE),
    or the reason codes of the TPM.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: V(present) sends the values to the machine, V(absent) deletes them on the machine.
    type: str
    choices: [present, absent]
    default: present
  owner_variable:
    description: Name of the variable with the auth value of the owner hierarchy, as text or as V(hex:…).
    type: str
    default: attested_tpm_owner_auth
  endorsement_variable:
    description: Name of the variable with the auth value of the endorsement hierarchy, as text or as V(hex:…).
    type: str
    default: attested_tpm_endorsement_auth
  handle:
    description: Handle of the offered key that O(sealed) is for. It is set by the action plugin.
    type: str
  sealed:
    description: The sealed values, base64. They are set by the action plugin. If unset, the machine offers a key.
    type: str
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.tpm
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: partial
    details:
      - Reports the hierarchies whose values would be sent because the machine does not hold them. The values are not
        compared.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Send the passwords of the site's host variables
  attested.kubernetes.tpm_authorization:

- name: Send passwords from variables with other names
  attested.kubernetes.tpm_authorization:
    owner_variable: vault_tpm_owner
    endorsement_variable: vault_tpm_endorsement

- name: Delete the passwords on the machine
  attested.kubernetes.tpm_authorization:
    state: absent
"""

RETURN = r"""
held:
  description: Hierarchies whose values the machine holds.
  returned: success
  type: list
  elements: str
  sample: [endorsement, owner]
demanded:
  description: Hierarchies that have a password.
  returned: if the machine was contacted
  type: list
  elements: str
  sample: [endorsement]
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    run_module,
    tpm_spec,
    tpm_timeout_spec,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.node.authorization import run_tpm_authorization  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "owner_variable": {"type": "str", "default": "attested_tpm_owner_auth", "no_log": False},
        "endorsement_variable": {"type": "str", "default": "attested_tpm_endorsement_auth", "no_log": False},
        "handle": {"type": "str", "no_log": False},
        "sealed": {"type": "str", "no_log": False},
    }
).merged(tpm_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.authorization:run_tpm_authorization"), libraries=("cryptography",))


if __name__ == "__main__":
    main()
