#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: state_disk_key
short_description: Take the state disk of a running node to another version of the master secret
version_added: 0.1.0
description:
  - Takes a ticket, which brings the disk's key under each version that is in use, and has a short-lived process
    exchange the key of the open disk. The new key gets a key slot of its own and is tested on a fresh copy of the
    header before the slot of the old key is wiped. The header is then recorded, in the volume and by the TPM's
    counter, with the name of the version. The next run completes an interrupted one.
  - A copy of the old header still opens with the old key and gives the same volume key. Only a disk that is formatted
    again has another volume key.
  - Keys are on tmpfs, readable by root only, while that process runs. They are neither options nor results.
  - Fails with V(MASTER_SECRET_UNKNOWN) where the ticket has no key under O(name), with V(STATE_DISK_CLOSED),
    V(DISK_KEY_WRONG), V(LUKS_KEYSLOTS) for a slot of somebody else, V(STATE_DISK_HEADER_CHANGED), V(SWAP_ACTIVE),
    V(NOT_TMPFS), and with what kept it from a ticket.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: The version that the disk is to be under.
    type: str
    required: true
  device:
    description: The state disk, by its path below C(/dev/disk/by-id).
    type: path
    required: true
  mount_point:
    description: Where its volume is mounted.
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
- name: Take the disk to the new version
  attested.kubernetes.state_disk_key:
    name: 2-9f2c1d5e9f2c1d5e
    device: "{{ attested_state_disk }}"

- name: See whether it is under it already
  attested.kubernetes.state_disk_key:
    name: 2-9f2c1d5e9f2c1d5e
    device: "{{ attested_state_disk }}"
  check_mode: true

- name: On a slow TPM
  attested.kubernetes.state_disk_key:
    name: 2-9f2c1d5e9f2c1d5e
    device: "{{ attested_state_disk }}"
    tpm_timeout_seconds: 60
"""

RETURN = r"""
steps:
  description: What was done, in order; empty where the disk was under that version, and in check mode.
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
