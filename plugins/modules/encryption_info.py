#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encryption_info
short_description: Say which keys for Secrets at rest a control plane has
version_added: 0.1.0
description:
  - Reads the names and fingerprints of the keys in C(/etc/kubernetes/attested/encryption.yaml), in their order, and
    asks the API server of this control plane whether it uses that very file. No key is ever returned.
  - Fails with V(ENCRYPTION_MALFORMED), with V(ENCRYPTION_FOREIGN) for a file that holds more than init or a rotation
    writes into it, V(ENCRYPTION_NOT_TOLD), or V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  kubeconfig:
    description: Kubeconfig on this machine with the rights for it.
    type: path
    default: /etc/kubernetes/admin.conf
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.node_config
"""

EXAMPLES = r"""
- name: Read which key Secrets are written with
  attested.kubernetes.encryption_info:
  register: encryption

- name: Show it
  ansible.builtin.debug:
    var: encryption.in_force

- name: Stop where the API server does not use its file
  ansible.builtin.assert:
    that: encryption.taken
"""

RETURN = r"""
node:
  description: Name of the node in its configuration.
  returned: success
  type: str
  sample: cp-1
keys:
  description: Name and fingerprint of each key, in the order of the file. Secrets are written with the first.
  returned: success
  type: list
  elements: dict
  sample: [{"name": "key-2-9f2c1d5e9f2c1d5e", "fingerprint": "9f2c1d5e9f2c1d5e"}]
in_force:
  description: Name of the key that Secrets are written with, V(identity) where they are written in clear.
  returned: success
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
taken:
  description: Whether the API server uses the file as it is now.
  returned: success
  type: bool
  sample: true
clear_first:
  description: Whether Secrets are written in clear.
  returned: success
  type: bool
  sample: false
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.encryption_rotation import run_encryption_info

SPEC = ArgumentSpec(options={"kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"}}).merged(
    node_config_spec()
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_encryption_info, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
