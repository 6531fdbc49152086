#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: state_disk
short_description: Format, open or close the encrypted state disk of a node
version_added: 0.1.0
description:
  - Brings a disk to O(state) from whatever it is, in steps that are continued by a further run where one was cut off,
    by a kill or by a loss of power.
  - The disk is LUKS2 with integrity (aes-xts-plain64, hmac-sha256, sectors of 4096 bytes); every parameter is pinned,
    its
    header is read by a strict reader of this collection, and it is opened by a copy of the header that was judged.
  - Only a disk without anything on it is formatted, or one that an interrupted format of this module left behind. Our
    own
    token in the header says whether a disk is in use, never the presence of LUKS. Anything else on the disk fails with
    V(STATE_DISK_OCCUPIED), another node's state disk with V(STATE_DISK_FOREIGN), unless O(erase) names the disk; a
    header with O(uuid) that is not ours in each field fails (V(LUKS_HEADER_FOREIGN) and others), and the message names
    the field.
  - Each unlock is counted inside the volume and in a counter of the TPM. A disk that was put back to a state before its
    last unlock fails with V(STATE_DISK_ROLLED_BACK), a header with V(STATE_DISK_HEADER_CHANGED), and is closed again.
  - A short-lived process handles keys, with its memory locked, without cores, and swap has to be off (V(SWAP_ACTIVE),
    V(STATE_DISK_UNGUARDED)). Keys are neither options nor results.
  - No playbook calls this module; a node's own run opens its disk itself, as
    O(attested.kubernetes.kubeadm_node#module:state_disk) says.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  device:
    description:
      - The disk, by its path below C(/dev/disk/by-id).
      - Any other path fails with V(STATE_DISK_OPTION), a path without a disk with V(STATE_DISK_MISSING), a disk that is
        mounted
        or held by something else with V(STATE_DISK_BUSY).
    type: path
    required: true
  uuid:
    description:
      - The id of the disk that the cluster assigned to this node, a lower-case UUID, from which its key is derived.
      - Anything else fails with V(DISK_ID_MALFORMED).
    type: str
    required: true
  state:
    description:
      - V(formatted) makes the encrypted volume, under a random key in memory, and wipes it, which takes
        minutes on a large disk. A disk in use is left as it is.
      - V(opened) does that where it is needed, exchanges the random key for the one in O(key_file), makes the file
        system
        at the first time, mounts it at O(mount_point), and binds O(directories) to it.
      - V(closed) unmounts and closes the disk.
      - V(rekeyed) takes a disk that is in use and open from the keys in O(former_key_files) to that in O(key_file),
        while it is used. The new key is put beside the old one and proven on a fresh copy of the header before the old
        one's slot is wiped; then the header is recorded under O(key_name). Otherwise it fails with
        V(STATE_DISK_CLOSED).
    type: str
    choices: [closed, formatted, opened, rekeyed]
    required: true
  key_file:
    description:
      - File with the 32 bytes of the disk's key, on tmpfs, mode 0600, of the user that runs this. Required with
        O(state=opened).
      - Any other file fails with V(STATE_DISK_KEY) or V(NOT_TMPFS), a key that does not open the disk with
        V(DISK_KEY_WRONG).
    type: path
  key_name:
    description:
      - The version of the master secret that the key in O(key_file) follows from, as a ticket names it; the record in
        the volume says it from then on. Required with O(state=rekeyed).
      - Anything else fails with V(OPTION_INVALID).
    type: str
  former_key_files:
    description:
      - Files like O(key_file) with keys that a disk in use may still be under, while the master secret is rotated. Such
        a disk opens by them as well, and is left under them unless O(state=rekeyed).
    type: list
    elements: path
    default: []
  volume:
    description:
      - The volume that was last in use on the disk (RV(volume) of an earlier run). Another volume, such as one on
        a disk that was formatted again with the same id, then fails with V(LUKS_VOLUME_FOREIGN), and a disk that would
        be formatted with V(STATE_DISK_ROLLED_BACK).
      - Anything but 64 hexadecimal digits fails with V(STATE_DISK_OPTION).
    type: str
  minimum_bytes:
    description: A smaller disk fails with V(STATE_DISK_TOO_SMALL).
    type: int
    default: 17179869184
  erase:
    description:
      - The last part of O(device), which lets what is on the disk go. It has no effect on a disk whose header has
        O(uuid).
      - Another name fails with V(STATE_DISK_OPTION).
    type: str
  mount_point:
    description: Where the volume is mounted.
    type: path
    default: /var/lib/attested/state
  directories:
    description:
      - The directories that the volume takes the place of.
      - One that holds something fails with V(STATE_DISK_HIDES_DATA), a relative one with V(STATE_DISK_OPTION).
    type: list
    elements: path
    default: [/var/lib/kubelet, /var/lib/containerd, /var/lib/etcd]
  memory:
    description: Directory on tmpfs for the random key and the copied header.
    type: path
    default: /run/attested/state-disk
  journal:
    description: File outside the disk that says that a format began.
    type: path
    default: /var/lib/attested/state-disk.json
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.tpm
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Open the state disk with the key of the ticket
  attested.kubernetes.state_disk:
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
    uuid: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11
    state: opened
    key_file: /run/attested/disk.key

- name: Show the planned steps for a disk
  attested.kubernetes.state_disk:
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
    uuid: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11
    state: formatted
  check_mode: true
  diff: true

- name: Change the key of an open disk to another version of the master secret
  attested.kubernetes.state_disk:
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
    uuid: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11
    state: rekeyed
    key_file: /run/attested/rekey/2-9f2c1d5e9f2c1d5e
    key_name: 2-9f2c1d5e9f2c1d5e
    former_key_files: [/run/attested/rekey/1-0a4f5e2a7c11d58f]

- name: Format a disk with other data
  attested.kubernetes.state_disk:
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
    uuid: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11
    state: formatted
    erase: nvme-eui.0025385b71b0c2d1
"""

RETURN = r"""
steps:
  description: What was done, or in check mode would be, in order.
  returned: success
  type: list
  elements: str
  sample: [open, check, mount, advance, bind]
uuid:
  description: The id of the disk.
  returned: success
  type: str
  sample: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11
volume:
  description: Public name of the encrypted volume, the same as long as its key is; empty where there is none yet.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
initialised:
  description: Whether the disk is in use.
  returned: success
  type: bool
  sample: true
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    run_module,
    tpm_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import run

SPEC = ArgumentSpec(
    options={
        "device": {"type": "path", "required": True},
        "uuid": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["closed", "formatted", "opened", "rekeyed"], "required": True},
        "key_file": {"type": "path", "no_log": False},
        "key_name": {"type": "str", "no_log": False},
        "former_key_files": {"type": "list", "elements": "path", "default": [], "no_log": False},
        "volume": {"type": "str"},
        "minimum_bytes": {"type": "int", "default": 17179869184},
        "erase": {"type": "str"},
        "mount_point": {"type": "path", "default": "/var/lib/attested/state"},
        "directories": {
            "type": "list",
            "elements": "path",
            "default": ["/var/lib/kubelet", "/var/lib/containerd", "/var/lib/etcd"],
        },
        "memory": {"type": "path", "default": "/run/attested/state-disk"},
        "journal": {"type": "path", "default": "/var/lib/attested/state-disk.json"},
    },
    required_if=(("state", "opened", ("key_file",)), ("state", "rekeyed", ("key_file", "key_name"))),
).merged(tpm_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run, libraries=("cryptography",))


if __name__ == "__main__":
    main()
