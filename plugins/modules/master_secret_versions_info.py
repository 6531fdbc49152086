#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret_versions_info
short_description: Say under which versions of the master secret a node is
version_added: 0.1.0
description:
  - Reads which versions the key service of this machine holds, and whether it was started with them, and under which
    version its state disk is, as the record in the open volume says it of the very header that the disk has now.
  - Versions are named by their number and the begin of their fingerprint, such as V(2-9f2c1d5e9f2c1d5e); no secret.
  - Fails with V(STATE_DISK_PATH), V(STATE_DISK_RECORD), V(FILE_UNUSABLE) or the code of a header (V(LUKS_CHECKSUM) and
    others) where the disk is not one.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  device:
    description: The state disk of this machine, by its path below C(/dev/disk/by-id). None where it has none.
    type: path
  mount_point:
    description: Where its volume is mounted.
    type: path
    default: /var/lib/attested/state
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.node_config
"""

EXAMPLES = r"""
- name: Versions of a machine without a state disk
  attested.kubernetes.master_secret_versions_info:
  register: found

- name: Versions of one with a state disk
  attested.kubernetes.master_secret_versions_info:
    device: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1
  register: found

- name: Show under which version its disk is
  ansible.builtin.debug:
    msg: "{{ found.disk }}"
"""

RETURN = r"""
node:
  description: Name of the node.
  returned: success
  type: str
  sample: cp-1
plane:
  description: The versions that a control plane holds. Null on a worker.
  returned: success
  type: dict
  contains:
    names:
      description: The versions, the leading one first.
      returned: on a control plane
      type: list
      elements: str
    taken:
      description: Whether its key service was started with them.
      returned: on a control plane
      type: bool
  sample: {"names": ["2-9f2c1d5e9f2c1d5e", "1-0a4f5e2a7c11d58f"], "taken": true}
disk:
  description: The version that the state disk is under; empty where it is between two of them, or not open, or nobody
    named it. Null without a disk.
  returned: success
  type: str
  sample: 2-9f2c1d5e9f2c1d5e
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.master_versions import run_info

SPEC = ArgumentSpec(
    options={
        "device": {"type": "path"},
        "mount_point": {"type": "path", "default": "/var/lib/attested/state"},
    }
).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_info, libraries=("cryptography", "google.protobuf", "yaml"))


if __name__ == "__main__":
    main()
