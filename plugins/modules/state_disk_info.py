#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: state_disk_info
short_description: Read the state of a node's present or future state disk
version_added: 0.2.0
description:
  - Returns the size, signatures, users and header of a disk, and whether the header is that of a state disk. It needs
    no key.
  - While the disk is being formatted, the progress of the wipe is returned too.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  device:
    description:
      - Path of the disk below C(/dev/disk/by-id).
      - The module fails with V(STATE_DISK_OPTION) for any other path.
    type: path
    required: true
  uuid:
    description: Id that the cluster assigned to the disk. If unset, RV(opened) is never true.
    type: str
  memory:
    description: Directory of O(attested.kubernetes.state_disk#module:memory), which contains the progress of the wipe.
    type: path
    default: /run/attested/state-disk
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: Inspect the disk
  attested.kubernetes.state_disk_info:
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
  register: disk

- name: Check that the disk has no other data
  ansible.builtin.assert:
    that: disk.empty or disk.header.refused | default('none') == ''
    fail_msg: "{{ disk.contents }}"

- name: Show the progress of the wipe
  attested.kubernetes.state_disk_info:
    device: "{{ attested_state_disk }}"
    uuid: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11
"""

RETURN = r"""
present:
  description: Whether the disk exists. If not, only this value and RV(wipe) are returned.
  returned: success
  type: bool
  sample: true
size_bytes:
  description: Size of the disk.
  returned: RV(present) is true
  type: int
  sample: 1000204886016
sector_bytes:
  description: Size of a logical sector.
  returned: RV(present) is true
  type: int
  sample: 512
signatures:
  description: Signatures that wipefs finds, each with C(type) and C(offset).
  returned: RV(present) is true
  type: list
  elements: dict
  sample: [{type: ext4, offset: 1080}]
empty:
  description: Whether the disk has no signature, and only zeros at its start and end.
  returned: RV(present) is true
  type: bool
  sample: false
contents:
  description: Description of what is on the disk.
  returned: RV(present) is true
  type: str
  sample: ext4 at 1080
used_by:
  description: Users of the disk, except the mapping of its own volume.
  returned: RV(present) is true
  type: list
  elements: str
  sample: []
opened:
  description: Whether the volume of the disk is open.
  returned: RV(present) is true
  type: bool
  sample: false
header:
  description:
    - Fields of the LUKS2 header (C(uuid), C(label), C(slots)), and in C(refused) the code of the first difference from
      a state disk. If C(refused) is empty, C(initialised) and C(volume) are returned too. Empty without LUKS.
  returned: RV(present) is true
  type: dict
  sample: {uuid: 6ab3c1e2-6c1f-4d58-9a39-0a4f5e2a7c11, label: attested-state, slots: [0], refused: LUKS_HEADER_FOREIGN}
wipe:
  description: C(done_bytes) and C(size_bytes) of a wipe that runs or was interrupted, otherwise empty.
  returned: success
  type: dict
  sample: {done_bytes: 268435456, size_bytes: 1000204886016}
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import inspect  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "device": {"type": "path", "required": True},
        "uuid": {"type": "str"},
        "memory": {"type": "path", "default": "/run/attested/state-disk"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("disk.state_disk:inspect"), libraries=("cryptography",))


if __name__ == "__main__":
    main()
