#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_components_info
short_description: List the files of a bundle that this node still needs
version_added: 0.2.0
description:
  - Compares this node with the manifest of a bundle. No other file of the bundle has to be on the node.
  - Names the stored files that a run of M(attested.kubernetes.kubernetes_components) and
    M(attested.kubernetes.node_runtime) would read, so that only these have to be delivered.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  manifest:
    description:
      - Content of the bundle's C(manifest.json), base64-encoded.
      - Fails with V(BUNDLE_MALFORMED) if it cannot be read and with V(BUNDLE_ARCH_MISMATCH) or
        V(BUNDLE_INCOMPLETE) if the bundle has nothing for this machine.
    type: str
    required: true
  role:
    description: Role of the node.
    type: str
    choices: [control_plane, worker]
    required: true
  store:
    description: Directory on this node that may already contain files of the bundle.
    type: path
    default: /var/lib/attested/bundle
  runtime_path:
    description: Path of the node's virtual environment.
    type: path
    default: /opt/attested/venv
  containerd:
    description: If true, containerd of the bundle is installed. Otherwise the node uses containerd of its distribution.
    type: str
    choices: [bundle, distribution]
    default: bundle
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: List the files that a worker needs
  attested.kubernetes.kubernetes_components_info:
    manifest: "{{ lookup('ansible.builtin.file', '/srv/bundle/manifest.json', rstrip=false) | b64encode }}"
    role: worker
  register: wanted

- name: Copy the missing files
  ansible.builtin.copy:
    src: "/srv/bundle/{{ item }}"
    dest: "/var/lib/attested/bundle/{{ item }}"
    mode: "0644"
  loop: "{{ wanted.missing }}"

- name: Check whether a control plane matches the bundle
  attested.kubernetes.kubernetes_components_info:
    manifest: "{{ lookup('ansible.builtin.file', '/srv/bundle/manifest.json', rstrip=false) | b64encode }}"
    role: control_plane
  register: state
"""

RETURN = r"""
kubernetes_version:
  description: Version of Kubernetes in the bundle.
  returned: success
  type: str
  sample: 1.35.4
needed:
  description: Stored files whose content is not installed yet.
  returned: success
  type: list
  elements: str
  sample: [programs/kubelet-1.35.4-amd64.gz, images/node-1.35.4-amd64.tar]
missing:
  description: Files of RV(needed) that are not in O(store) either.
  returned: success
  type: list
  elements: str
  sample: [images/node-1.35.4-amd64.tar]
missing_bytes:
  description: Total size of RV(missing) in bytes.
  returned: success
  type: int
  sample: 47380480
components_current:
  description: Whether M(attested.kubernetes.kubernetes_components) would change nothing.
  returned: success
  type: bool
current:
  description: Whether M(attested.kubernetes.node_runtime) would change nothing either.
  returned: success
  type: bool
member:
  description: Whether the machine is a member of a cluster. On a member the bundle is prepared, but not switched to.
  returned: success
  type: bool
release:
  description: Name of the bundle's release, the first twelve digits of the manifest's SHA-256.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c
free_bytes:
  description: Free bytes for an upgrade, on the file system with the least free space.
  returned: success
  type: int
  sample: 21474836480
message:
  description: What is prepared, what is in use and the next command, if a member does not use the bundle's release.
  returned: success
  type: str
  sample: ""
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.install import inspect_components
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "manifest": {"type": "str", "required": True},
        "role": {"type": "str", "choices": ["control_plane", "worker"], "required": True},
        "store": {"type": "path", "default": "/var/lib/attested/bundle"},
        "runtime_path": {"type": "path", "default": "/opt/attested/venv"},
        "containerd": {"type": "str", "choices": ["bundle", "distribution"], "default": "bundle"},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, inspect_components)


if __name__ == "__main__":
    main()
