#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_runtime
short_description: Make the node's virtual environment from the wheels of a bundle
version_added: 0.1.0
description:
  - Makes a virtual environment that holds exactly the wheels of a bundle, each admitted by its hash, without any
    package index.
  - Every state of the wheels has a directory of its own; O(path) is a link that is switched by one rename when
    the new environment is complete, so a run that was cut off leaves the old one in use.
  - On a member of a cluster (C(/etc/kubernetes/kubelet.conf) exists) O(path) is not switched. The playbook C(upgrade)
    does that.
  - An environment is removed when no process, unit or link refers to it.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  bundle:
    description: Directory of the bundle on this node.
    type: path
    required: true
  role:
    description: What kind of node this is; only control planes get what speaks to the Kubernetes API.
    type: str
    choices: [control_plane, worker]
    required: true
  path:
    description:
      - The link to the environment in use.
      - A file or directory in its place fails with V(RUNTIME_INSTALL_FAILED).
    type: path
    default: /opt/attested/venv
  manifest_sha256:
    description:
      - SHA-256 of the manifest of the bundle that is meant; any other fails with V(BUNDLE_HASH_MISMATCH).
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
  description: The link to the environment in use.
  returned: success
  type: str
  sample: /opt/attested/venv
python:
  description: Minor version of its Python.
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
  description: What names its state, a hash over the Python version and all wheels.
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
