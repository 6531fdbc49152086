#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: support_material_info
short_description: Collect redacted material of this machine for support
version_added: 0.2.0
description:
  - Reads a fixed list of files, directories, commands and kinds of objects (C(module_utils/node/support_catalogue.py)).
    Nothing else is read. Of configurations and objects only the listed fields are kept. Of O(firmware_log) and
    O(userspace_log) only size and digest are kept.
  - The material is redacted. The module searches it for the private keys and decrypted secrets of this machine in every
    usual encoding, and for text that looks like a password, a token or a key.
  - At most 2000 lines and half a megabyte of a journal are kept, and at most 8 MiB in total.
  - A source that fails is listed in RV(left_out) and does not fail the module. On a machine without the virtual
    environment fewer sources can be read.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.tpm
  - attested.kubernetes.tpm.logs
"""

EXAMPLES = r"""
- name: Collect the material of each node
  attested.kubernetes.support_material_info:
  register: gathered

- name: Show the sources that were not read
  ansible.builtin.debug:
    var: gathered.left_out

- name: Collect the material of a machine with a software TPM
  attested.kubernetes.support_material_info:
    tcti: swtpm:path=/srv/tpm/tpm
    firmware_log: /srv/boot/eventlog.bin
"""

RETURN = r"""
material:
  description: Collected material for M(attested.kubernetes.support_bundle), base64.
  returned: success
  type: str
  sample: H4sIAAAAAAAC
collected:
  description: Number of collected pieces.
  returned: success
  type: int
  sample: 48
hidden:
  description: Number of redactions in the material.
  returned: success
  type: int
  sample: 0
left_out:
  description: What could not be read, and why.
  returned: success
  type: list
  elements: str
  sample: ["objects/nodes: this machine has no kubeconfig of an admin"]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    run_module,
    tpm_logs_spec,
    tpm_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_collect import run_material

SPEC = tpm_logs_spec().merged(tpm_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_material)


if __name__ == "__main__":
    main()
