#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stored_secrets
short_description: Have every Secret written again under the key in force
version_added: 0.1.0
description:
  - Reads of the etcd of this control plane which Secrets another key than O(in_force) closes, and has the API server
    write those again as they are, by a patch that changes nothing. No value of a Secret is read here. A Secret that
    somebody else changes meanwhile stays his; the API server tries again.
  - What it has done so far is shown while it works.
  - Fails with V(ENCRYPTION_REWRITE_FAILED) where some stay as they are after three tries, with V(ETCD_UNREACHABLE),
    V(ENCRYPTION_FOREIGN) or V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  in_force:
    description: Name of the key that API servers write with. They must do so everywhere already.
    type: str
    required: true
  most:
    description: How many Secrets are written in one go, between two lines that are shown.
    type: int
    default: 200
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Have every Secret written under the new key
  attested.kubernetes.stored_secrets:
    in_force: key-2-9f2c1d5e9f2c1d5e
  run_once: true

- name: The same in small steps
  attested.kubernetes.stored_secrets:
    in_force: key-2-9f2c1d5e9f2c1d5e
    most: 20
  run_once: true

- name: See how many are under another key
  attested.kubernetes.stored_secrets:
    in_force: key-2-9f2c1d5e9f2c1d5e
  check_mode: true
  run_once: true
"""

RETURN = r"""
done:
  description: How many were written again.
  returned: success
  type: int
  sample: 12
left:
  description: How many are under another key.
  returned: success
  type: int
  sample: 0
total:
  description: How many there are.
  returned: success
  type: int
  sample: 12
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)

SPEC = ArgumentSpec(
    options={
        "in_force": {"type": "str", "required": True},
        "most": {"type": "int", "default": 200},
    }
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.encryption_rotation:run_stored_secrets"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
