#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_components
short_description: Install Kubernetes programs and images from a bundle
version_added: 0.2.0
description:
  - Installs the programs and container images of a bundle on this node, for its machine type and O(role).
  - All files that are needed are first verified against the manifest. Then each program is replaced by one rename, and
    missing images are imported into containerd. The next run continues an interrupted run.
  - The programs of each bundle are stored in a directory of their release, C(/opt/attested/releases). The installed
    file is a hard link to the stored file, or a copy on another file system. A release is removed if it is not
    installed and no process, unit or link refers to it.
  - On a member of a cluster (C(/etc/kubernetes/kubelet.conf) exists) only the release and the images are added. No
    installed program is replaced.
  - The module needs only the bundle directory on the node. How the directory was copied there does not matter.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  bundle:
    description:
      - Directory of the bundle on this node.
      - The module fails with V(BUNDLE_INCOMPLETE) if the manifest or a required file is missing.
    type: path
    required: true
  role:
    description: Role of the node. A worker gets no programs and images that only control planes need.
    type: str
    choices: [control_plane, worker]
    required: true
  manifest_sha256:
    description:
      - Expected SHA-256 of the bundle's manifest. The module fails with V(BUNDLE_HASH_MISMATCH) for another manifest.
      - Set it if other users or machines could write to the directory.
    type: str
  containerd:
    description: If true, containerd of the bundle is installed. Otherwise the node uses containerd of its distribution.
    type: str
    choices: [bundle, distribution]
    default: bundle
  only:
    description:
      - If set, the module only installs V(programs) or only imports V(images). Images are imported into a running
        containerd.
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
  description: Programs of a member of a cluster that differ from the release and were not replaced.
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
  description: References of images that were missing or different, and were imported.
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
