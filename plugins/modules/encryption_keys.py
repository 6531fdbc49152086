#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encryption_keys
short_description: Put the keys for Secrets at rest of a control plane in an order
version_added: 0.1.0
description:
  - Writes C(/etc/kubernetes/attested/encryption.yaml) with the keys of O(order), and waits until the API server of this
    control plane uses that very file, which takes up to a minute; a running one takes it without a restart.
  - An API server that was made before Secrets were encrypted is told of the file first, which restarts it, and so are
    control planes that join later, by the ConfigMap C(kubeadm-config).
  - Without O(order) a new key is made, at the end of the file; nothing is written with it yet.
  - Fails with V(ENCRYPTION_KEY_MISSING) for a key that is neither here nor in O(sealed), V(ENCRYPTION_NOT_TAKEN),
    V(ENCRYPTION_NOT_TOLD), V(ENCRYPTION_MALFORMED), V(ENCRYPTION_FOREIGN), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE) or
    V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  order:
    description: Names of the keys, the one that Secrets are written with first; V(identity) writes them in clear.
    type: list
    elements: str
  handle:
    description: Which answer of this machine O(sealed) was sealed to, of M(attested.kubernetes.encryption_recipient).
    type: str
  sealed:
    description: The box with the keys that are not here yet, of M(attested.kubernetes.encryption_share).
    type: str
  kubeconfig:
    description: Kubeconfig on this machine with the rights for it.
    type: path
    default: /etc/kubernetes/admin.conf
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: partial
    details: A key that would come in O(sealed) cannot be named without opening it, which uses the box up.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details: Without O(order) every run makes one more key.
"""

EXAMPLES = r"""
- name: Make a new key
  attested.kubernetes.encryption_keys:
  register: key

- name: Write Secrets with it from now on
  attested.kubernetes.encryption_keys:
    order: ["{{ key.made }}", key-1]

- name: Take it from another control plane
  attested.kubernetes.encryption_keys:
    order: [key-1, key-2-9f2c1d5e9f2c1d5e]
    handle: "{{ recipient.handle }}"
    sealed: "{{ share.boxes['cp-2'] }}"
"""

RETURN = r"""
made:
  description: Name of the key that was made.
  returned: when one was
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.encryption_rotation import run_encryption_keys

SPEC = ArgumentSpec(
    options={
        "order": {"type": "list", "elements": "str"},
        "handle": {"type": "str", "no_log": False},
        "sealed": {"type": "str", "no_log": False},
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
    },
    required_together=(("handle", "sealed"),),
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_encryption_keys, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
