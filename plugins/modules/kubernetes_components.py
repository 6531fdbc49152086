#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_components
short_description: Install Kubernetes programs and images from a bundle
version_added: 0.1.0
description:
  - Makes the programs and container images of this node those of a bundle, for its machine type and O(role).
  - First everything that has to be read is verified against the manifest, then each program is replaced by one
    rename, then missing images are imported into containerd. A run that was cut off is continued by the next.
  - The programs of each bundle are kept in a directory of their release, C(/opt/attested/releases), and the installed
    file is a hard link of it, or a copy on another file system. A release is removed when it is not installed and no
    process, unit or link refers to it.
  - On a member of a cluster (C(/etc/kubernetes/kubelet.conf) exists) only the release and the images are added. No
    installed program is replaced.
  - Needs nothing but the bundle directory, however it came to the node.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  bundle:
    description:
      - Directory of the bundle on this node.
      - Without a manifest, or without a file that is needed, the module fails with V(BUNDLE_INCOMPLETE).
    type: path
    required: true
  role:
    description: What kind of node this is; a worker gets no programs and images that only control planes need.
    type: str
    choices: [control_plane, worker]
    required: true
  manifest_sha256:
    description:
      - SHA-256 of the manifest of the bundle that is meant; any other fails with V(BUNDLE_HASH_MISMATCH).
      - Set it wherever others could write to the directory.
    type: str
  containerd:
    description: Whether containerd is part of what is installed, or the node has that of its distribution.
    type: str
    choices: [bundle, distribution]
    default: bundle
  only:
    description:
      - Install V(programs) or import V(images) only. Images are imported into a containerd that runs.
    type: str
    choices: [programs, images]
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
- name: Install the components of a worker
  attested.kubernetes.kubernetes_components:
    bundle: /var/lib/attested/bundle
    role: worker

- name: Install from a medium that is not trusted
  attested.kubernetes.kubernetes_components:
    bundle: /media/bundle
    role: control_plane
    manifest_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e

- name: Show the changes of a newer bundle
  attested.kubernetes.kubernetes_components:
    bundle: /srv/bundle
    role: worker
  check_mode: true
  diff: true
"""

RETURN = r"""
kubernetes_version:
  description: Version of Kubernetes in the bundle.
  returned: success
  type: str
  sample: 1.35.4
release:
  description: Name of the bundle's release, the first twelve digits of the manifest's SHA-256.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c
waiting:
  description: Programs of a member that differ from the release and were not replaced.
  returned: success
  type: list
  elements: str
  sample: []
message:
  description: What was prepared, what is in use and the next command, if RV(waiting) is not empty.
  returned: success
  type: str
  sample: ""
installed:
  description: Programs that were installed or replaced.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/bin/kubelet]
imported:
  description: References of the images that were missing or different.
  returned: success
  type: list
  elements: str
  sample: ["localhost/attested-tour:1"]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.install import install_components
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "bundle": {"type": "path", "required": True},
        "role": {"type": "str", "choices": ["control_plane", "worker"], "required": True},
        "manifest_sha256": {"type": "str"},
        "containerd": {"type": "str", "choices": ["bundle", "distribution"], "default": "bundle"},
        "only": {"type": "str", "choices": ["programs", "images"]},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, install_components)


if __name__ == "__main__":
    main()
