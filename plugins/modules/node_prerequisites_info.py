#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_prerequisites_info
short_description: List everything that a machine lacks before it can be prepared
version_added: 0.2.0
description:
  - Checks the packages, swap, cgroup version, kernel and init system of this machine, and lists everything that must be
    repaired before it can be a node.
  - The module changes nothing and does not fail because of a finding. The caller decides.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  packages:
    description:
      - Packages that have to be installed, by their names in Debian. On a machine with rpm, the names of RHEL and
        Fedora are used.
      - A machine with neither dpkg nor rpm is not checked for packages.
    type: list
    elements: str
    required: true
  kernel_modules:
    description: Kernel features that the machine needs in addition to those of every node, as modules or built in.
    type: list
    elements: str
    default: []
  allow_cgroup_v1:
    description: If true, cgroup v1 is accepted, which Kubernetes itself no longer supports.
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: List the missing prerequisites
  attested.kubernetes.node_prerequisites_info:
    packages: [containerd, containernetworking-plugins, python3]
  register: machine

- name: Fail if a prerequisite is missing
  ansible.builtin.assert:
    that: machine.ready
    fail_msg: "{{ machine.findings | join('; ') }}"

- name: List the missing prerequisites of a machine with a state disk
  attested.kubernetes.node_prerequisites_info:
    packages: [containerd, cryptsetup-bin]
    kernel_modules: [dm_crypt, dm_integrity]

- name: List the missing prerequisites of a test machine
  attested.kubernetes.node_prerequisites_info:
    packages: [containerd]
    allow_cgroup_v1: true
"""

RETURN = r"""
findings:
  description: One sentence for each problem to repair. Empty if the machine is ready.
  returned: success
  type: list
  elements: str
  sample: ["expected the packages containerd, they are not installed"]
missing_packages:
  description: Packages of O(packages) that are not installed, by their names in the machine's distribution.
  returned: success
  type: list
  elements: str
  sample: [containerd]
package_manager:
  description: Package manager of the machine, V(apt-get) or V(dnf). Empty if it has neither dpkg nor rpm.
  returned: success
  type: str
  sample: apt-get
cgroup_version:
  description: V(1) or V(2).
  returned: success
  type: int
  sample: 2
ready:
  description: Whether RV(findings) is empty.
  returned: success
  type: bool
  sample: false
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.prerequisites import inspect_prerequisites
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "packages": {"type": "list", "elements": "str", "required": True},
        "kernel_modules": {"type": "list", "elements": "str", "default": []},
        "allow_cgroup_v1": {"type": "bool", "default": False},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, inspect_prerequisites)


if __name__ == "__main__":
    main()
