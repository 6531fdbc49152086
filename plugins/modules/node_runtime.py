#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_runtime
short_description: Install the node's virtual environment from the wheels of a bundle
version_added: 0.2.0
description:
  - Creates a virtual environment that contains exactly the wheels of a bundle. Each wheel is verified by its hash, and
    no package index is used.
  - Each set of wheels has its own directory. O(path) is a link that is switched by one rename when the new environment
    is complete. After an interrupted run the old environment is still in use.
  - On a member of a cluster (C(/etc/kubernetes/kubelet.conf) exists) O(path) is not switched. The playbook C(upgrade)
    does that.
  - An environment is removed if no process, unit or link refers to it.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  bundle:
    description: Directory of the bundle on this node.
    type: path
    required: true
  role:
    description: Role of the node. Only control planes get the wheels that connect to the Kubernetes API.
    type: str
    choices: [control_plane, worker]
    required: true
  path:
    description:
      - Path of the link to the environment in use.
      - The module fails with V(RUNTIME_INSTALL_FAILED) if the path is a file or a directory.
    type: path
    default: /opt/attested/venv
  manifest_sha256:
    description:
      - Expected SHA-256 of the bundle's manifest. The module fails with V(BUNDLE_HASH_MISMATCH) for another manifest.
    type: str
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Install the environment of a worker
  attested.kubernetes.node_runtime:
    bundle: /var/lib/attested/bundle
    role: worker

- name: Install the environment at another path, from a pinned bundle
  attested.kubernetes.node_runtime:
    bundle: /media/bundle
    role: control_plane
    path: /srv/attested/venv
    manifest_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e

- name: Check whether the environment is current
  attested.kubernetes.node_runtime:
    bundle: /var/lib/attested/bundle
    role: worker
  check_mode: true
"""

RETURN = r"""
path:
  description: Path of the link to the environment in use.
  returned: success
  type: str
  sample: /opt/attested/venv
python:
  description: Minor version of Python in the environment.
  returned: success
  type: str
  sample: "3.11"
release:
  description: Name of the bundle's release, the first twelve digits of the manifest's SHA-256.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c
switched:
  description: Whether O(path) was switched to this environment.
  returned: success
  type: bool
message:
  description: What was prepared, what is in use and the next command, if a member uses another environment.
  returned: success
  type: str
  sample: ""
digest:
  description: Name of the set of wheels, a hash over the Python version and all wheels.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.runtime import install_runtime
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "bundle": {"type": "path", "required": True},
        "role": {"type": "str", "choices": ["control_plane", "worker"], "required": True},
        "path": {"type": "path", "default": "/opt/attested/venv"},
        "manifest_sha256": {"type": "str"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, install_runtime)


if __name__ == "__main__":
    main()
