#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: state_disk
short_description: Format, open or close the encrypted state disk of a node
version_added: 0.2.0
description:
  - Brings a disk into O(state) from any earlier state. A further run continues the steps after a kill or a loss of
    power.
  - The disk is LUKS2 with integrity (aes-xts-plain64, hmac-sha256, sectors of 4096 bytes), and every parameter is
    pinned. The header is read by a strict parser of this collection. The disk is opened with the copy of the header
    that was verified.
  - Only an empty disk is formatted, or a disk on which an earlier format of this module was interrupted. A token of
    this collection in the header marks a disk in use, not the presence of LUKS.
  - The module fails with V(STATE_DISK_OCCUPIED) if the disk has other data, and with V(STATE_DISK_FOREIGN) if it is the
    state disk of another node, unless O(erase) names the disk. It fails with V(LUKS_HEADER_FOREIGN) or a similar code
    if a header with O(uuid) differs from the pinned parameters. The message names the field.
  - Each unlock is counted inside the volume and in a counter of the TPM. If the disk was restored to a state before its
    last unlock, the disk is closed and the module fails with V(STATE_DISK_ROLLED_BACK). If the header was changed, the
    module fails with V(STATE_DISK_HEADER_CHANGED).
  - A short-lived process handles keys in locked memory, without core dumps. Swap must be off (V(SWAP_ACTIVE),
    V(STATE_DISK_UNGUARDED)). Keys are neither options nor results.
  - No playbook calls this module. A node opens its disk itself, as described for
    O(attested.kubernetes.kubeadm_node#module:state_disk).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  device:
    description:
      - Path of the disk below C(/dev/disk/by-id).
      - The module fails with V(STATE_DISK_OPTION) for any other path, with V(STATE_DISK_MISSING) if there is no such
        disk, and with V(STATE_DISK_BUSY) if the disk is mounted or used otherwise.
    type: path
    required: true
  uuid:
    description:
      - Id that the cluster assigned to the disk of this node, a lower-case UUID. The key of the disk is derived from
        it.
      - The module fails with V(DISK_ID_MALFORMED) for any other value.
    type: str
    required: true
  state:
    description:
      - V(formatted) creates the encrypted volume with a random key in memory and wipes it, which takes minutes on a
        large disk. A disk in use is not changed.
      - V(opened) formats the disk if necessary, replaces the random key by the key in O(key_file), creates the file
        system the first time, mounts it at O(mount_point), and bind mounts O(directories) from it.
      - V(closed) unmounts and closes the disk.
      - V(rekeyed) changes an open disk from the keys in O(former_key_files) to the key in O(key_file), while it is
        used. The new key is added and tested on a fresh copy of the header before the slot of the old key is wiped.
        Then the header is recorded under O(key_name). The module fails with V(STATE_DISK_CLOSED) if the disk is not
        open.
    type: str
    choices: [closed, formatted, opened, rekeyed]
    required: true
  key_file:
    description:
      - Path of a file with the 32 bytes of the disk's key. The file must be on tmpfs, have mode 0600 and belong to the
        user that runs the module. Required with O(state=opened).
      - The module fails with V(STATE_DISK_KEY) or V(NOT_TMPFS) for any other file, and with V(DISK_KEY_WRONG) if the
        key does not open the disk.
    type: path
  key_name:
    description:
      - Version of the master secret from which the key in O(key_file) is derived, as a ticket names it. It is stored in
        the record of the volume. Required with O(state=rekeyed).
      - The module fails with V(OPTION_INVALID) for any other value.
    type: str
  former_key_files:
    description:
      - Paths of files like O(key_file), with keys that a disk in use may still have while the master secret is rotated.
        They also open the disk, and are kept unless O(state=rekeyed).
    type: list
    elements: path
    default: []
  volume:
    description:
      - Name of the volume that was last in use on the disk (RV(volume) of an earlier run). The module then fails with
        V(LUKS_VOLUME_FOREIGN) for another volume, such as that of a disk that was formatted again with the same id. It
        fails with V(STATE_DISK_ROLLED_BACK) if the disk would be formatted.
      - The module fails with V(STATE_DISK_OPTION) for any value but 64 hexadecimal digits.
    type: str
  minimum_bytes:
    description: Minimum size of the disk. The module fails with V(STATE_DISK_TOO_SMALL) for a smaller disk.
    type: int
    default: 17179869184
  erase:
    description:
      - Last part of the path in O(device). It allows to erase the data on the disk. It has no effect on a disk whose
        header has O(uuid).
      - The module fails with V(STATE_DISK_OPTION) for another name.
    type: str
  mount_point:
    description: Directory at which the volume is mounted.
    type: path
    default: /var/lib/attested/state
  directories:
    description:
      - Directories that are bind mounted from the volume.
      - The module fails with V(STATE_DISK_HIDES_DATA) for a directory that is not empty, and with V(STATE_DISK_OPTION)
        for a relative path.
    type: list
    elements: path
    default: [/var/lib/kubelet, /var/lib/containerd, /var/lib/etcd]
  memory:
    description: Directory on tmpfs for the random key and the copied header.
    type: path
    default: /run/attested/state-disk
  journal:
    description: Path of a file outside the disk that records that a format began.
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
  description: Steps that were run, or in check mode would be run, in order.
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
  description:
    - Public name of the encrypted volume, which stays the same as long as its key. Empty if there is no volume yet.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
initialised:
  description: Whether the disk is in use.
  returned: success
  type: bool
  sample: true
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
    from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import run  # noqa: F401

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
    run_module(SPEC, installed("disk.state_disk:run"), libraries=("cryptography",))


if __name__ == "__main__":
    main()
