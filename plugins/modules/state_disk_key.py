#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: state_disk_key
short_description: Change the key of a running node's state disk to another version of the master secret
version_added: 0.2.0
description:
  - Fetches a ticket, which contains the disk's key under each version in use. A short-lived process exchanges the key
    of the open disk. The new key gets its own key slot and is tested on a fresh copy of the header before the slot of
    the old key is wiped. The header is then recorded, in the volume and with the TPM's counter, under the name of the
    version. The next run completes an interrupted exchange.
  - A copy of the old header still opens with the old key and gives the same volume key. The volume key changes only if
    the disk is formatted again.
  - While that process runs, keys are on tmpfs, readable by root only. They are neither options nor results.
  - The module fails with V(MASTER_SECRET_UNKNOWN) if the ticket has no key under O(name), and with V(LUKS_KEYSLOTS) if
    a slot does not belong to this collection. It also fails with V(STATE_DISK_CLOSED), V(DISK_KEY_WRONG),
    V(STATE_DISK_HEADER_CHANGED), V(SWAP_ACTIVE), V(NOT_TMPFS), or the reason for which there is no ticket.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Version of the master secret that the disk will be under.
    type: str
    required: true
  device:
    description: Path of the state disk below C(/dev/disk/by-id).
    type: path
    required: true
  mount_point:
    description: Directory at which the volume of the disk is mounted.
    type: path
    default: /var/lib/attested/state
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Change the key of the disk to the new version
  attested.kubernetes.state_disk_key:
    name: 2-9f2c1d5e9f2c1d5e
    device: "{{ attested_state_disk }}"

- name: Check whether the disk is already under the new version
  attested.kubernetes.state_disk_key:
    name: 2-9f2c1d5e9f2c1d5e
    device: "{{ attested_state_disk }}"
  check_mode: true

- name: Change the key with a slow TPM
  attested.kubernetes.state_disk_key:
    name: 2-9f2c1d5e9f2c1d5e
    device: "{{ attested_state_disk }}"
    tpm_timeout_seconds: 60
"""

RETURN = r"""
steps:
  description: Steps that were run, in order. Empty in check mode, and if the disk was already under the version.
  returned: success
  type: list
  elements: str
  sample: [loosen, add_beside, prove, drop_first, add_permanent, drop_beside, record]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
    tpm_timeout_spec,
)

SPEC = ArgumentSpec(
    options={
        "name": {"type": "str", "required": True},
        "device": {"type": "path", "required": True},
        "mount_point": {"type": "path", "default": "/var/lib/attested/state"},
    }
).merged(node_config_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.master_versions:run_rekey"), libraries=("cryptography", "grpc", "yaml"))


if __name__ == "__main__":
    main()
