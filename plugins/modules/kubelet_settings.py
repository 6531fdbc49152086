#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_settings
short_description: Add settings of a site to the kubelet's configuration
version_added: 0.2.0
description:
  - Writes C(/etc/attested/kubelet.d/50-site.conf), which the kubelet merges over the configuration that C(kubeadm)
    wrote, and the kubelet's unit files. The file always turns C(rotateCertificates) off, because the node renews the
    kubelet's client certificate itself.
  - A running kubelet is restarted if a file changed, and its Pods keep running. If the kubelet is not healthy
    afterwards, all previous files are restored, the kubelet is restarted again, and the module fails with
    V(KUBERNETES_NOT_HEALTHY).
  - The module fails with V(CONFIG_INVALID), and changes nothing, for a field that this collection sets itself.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  configuration:
    description:
      - Fields of a C(KubeletConfiguration) of C(kubelet.config.k8s.io/v1beta1).
      - The module refuses fields that set which clients the kubelet trusts or what it starts without the API server.
        Examples are C(authentication), C(authorization), C(staticPodPath), C(rotateCertificates) and C(readOnlyPort).
    type: dict
    default: {}
  units:
    description: The kubelet's unit files.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path of the unit file.
        type: path
        required: true
      content:
        description: Content of the unit file.
        type: str
        required: true
  wait_seconds:
    description: How long to wait for a healthy kubelet, in seconds, and again after the previous files were restored.
    type: int
    default: 120
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
- name: Reserve memory for the system and evict earlier
  attested.kubernetes.kubelet_settings:
    configuration:
      systemReserved: {memory: 1Gi}
      evictionHard: {memory.available: 500Mi}

- name: Show what a change would restart
  attested.kubernetes.kubelet_settings:
    configuration: {maxPods: 200}
  check_mode: true
  diff: true
"""

RETURN = r"""
written:
  description: The files that were written, or in check mode would be written.
  returned: success
  type: list
  elements: str
  sample: [/etc/attested/kubelet.d/50-site.conf]
restarted:
  description: Whether the kubelet was restarted, or in check mode would be restarted.
  returned: success
  type: bool
  sample: true
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.kubelet import run_settings
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "configuration": {"type": "dict", "default": {}},
        "units": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "path", "required": True},
                "content": {"type": "str", "required": True},
            },
        },
        "wait_seconds": {"type": "int", "default": 120},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_settings)


if __name__ == "__main__":
    main()
