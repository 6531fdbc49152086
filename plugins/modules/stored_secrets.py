#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stored_secrets
short_description: Write every Secret again under the key in force
version_added: 0.2.0
description:
  - Reads from the etcd of this control plane which Secrets are encrypted with another key than O(in_force). The API
    server writes these Secrets again without a change, by an empty patch. The module reads no value of a Secret. If
    another client changes a Secret meanwhile, its change is kept and the write is tried again.
  - The module prints its progress.
  - The module fails with V(ENCRYPTION_REWRITE_FAILED) if some Secrets are unchanged after three attempts, with
    V(ETCD_UNREACHABLE), V(ENCRYPTION_FOREIGN) or V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  in_force:
    description: Name of the key that API servers encrypt with. All API servers must already use it.
    type: str
    required: true
  most:
    description: Number of Secrets that are written between two lines of progress.
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
- name: Write every Secret again under the new key
  attested.kubernetes.stored_secrets:
    in_force: key-2-9f2c1d5e9f2c1d5e
  run_once: true

- name: Write the Secrets in small steps
  attested.kubernetes.stored_secrets:
    in_force: key-2-9f2c1d5e9f2c1d5e
    most: 20
  run_once: true

- name: Count the Secrets under another key
  attested.kubernetes.stored_secrets:
    in_force: key-2-9f2c1d5e9f2c1d5e
  check_mode: true
  run_once: true
"""

RETURN = r"""
done:
  description: Number of Secrets that were written again.
  returned: success
  type: int
  sample: 12
left:
  description: Number of Secrets that are under another key.
  returned: success
  type: int
  sample: 0
total:
  description: Number of all Secrets.
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
