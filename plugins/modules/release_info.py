#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: release_info
short_description: List the releases of Kubernetes that this collection knows, and the upgrades that lead to one of them
version_added: 0.2.0
description:
  - Reads the table of releases of the role P(attested.kubernetes.bundle_builder#role) and compares it with the versions
    that the nodes run.
  - API servers are upgraded by one minor version at a time. Kubelets are upgraded once, with the last API server
    upgrade or after it. RV(steps) lists the upgrades in this order, each with its reason.
  - The module does not fail if no upgrade leads to O(wanted). RV(refused) has the reason. It fails with
    V(RELEASE_TABLE_MALFORMED) if the table is damaged.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  files_dir:
    description: Directory with the table of releases and the pinned Go modules (C(releases/), C(go/)).
    type: path
    required: true
  wanted:
    description:
      - Exact version, or a minor version, which selects its default patch. Empty selects the default patch of the
        newest minor version.
    type: str
    default: ""
  nodes:
    description:
      - The nodes of the cluster as M(attested.kubernetes.cluster_info) returns them. Empty if there is no cluster.
      - The fields C(name), C(role), C(version), C(api_version) and C(registered) are read. Rows that are not registered
        are skipped.
      - The module fails with V(OPTION_INVALID) for a row without these fields.
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
"""

EXAMPLES = r"""
- name: List the releases
  attested.kubernetes.release_info:
    files_dir: /usr/share/attested/bundle_builder/files
  register: table

- name: Read the upgrades that lead to a version
  attested.kubernetes.release_info:
    files_dir: /usr/share/attested/bundle_builder/files
    wanted: 1.37.2
    nodes:
      - {name: cp-1, version: v1.35.4, role: control-plane, registered: true}
      - {name: w-1, version: v1.35.4, role: worker, registered: true}
  register: table

- name: Print the next upgrade
  ansible.builtin.debug:
    msg: "{{ table.steps[0].release }}: {{ table.steps[0].why }}"
  when: table.steps | length > 0
"""

RETURN = r"""
releases:
  description:
    - All releases, the newest first.
    - C(default) is true if the minor version selects this release. C(bundle) is true if a bundle can be built from it.
    - C(nodes) has the names of the nodes that run the release, C(components) the versions of its components, and
      C(unpinned) the components whose hash is pinned at the first download.
  returned: success
  type: list
  elements: dict
  sample:
    - kubernetes: 1.35.4
      default: true
      bundle: true
      nodes: [cp-1, w-1]
      components: {etcd: 3.6.6, coredns: 1.13.1, pause: 3.10.1, containerd: 2.3.4}
      unpinned: [coredns, helm]
others:
  description: Nodes that run a version that is not in the table, each with its version.
  returned: success
  type: dict
  sample: {}
wanted:
  description: The version that RV(steps) lead to, or the value of O(wanted) if it is not in the table.
  returned: success
  type: str
  sample: 1.37.2
newest:
  description: The default patch of the newest minor version.
  returned: success
  type: str
  sample: 1.37.2
steps:
  description: >-
    The upgrades in their order. Empty if all nodes run RV(wanted). C(kubelets) is true if the kubelets of the nodes are
    upgraded too. Their nodes are drained for that.
  returned: success
  type: list
  elements: dict
  sample:
    - release: 1.36.3
      nodes: [cp-1]
      workers: false
      kubelets: false
      why: "1.35.4 -> 1.37.2 goes by 1.36: kubeadm upgrades one minor version at a time"
refused:
  description:
    - C(reason), C(message) and C(command) if no upgrade leads to RV(wanted), empty otherwise. The reasons are
      V(RELEASE_UNKNOWN), V(RELEASE_DOWNGRADE) and V(RELEASE_SKEW).
  returned: success
  type: dict
  sample: {}
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.upgrade_path import run_info
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "files_dir": {"type": "path", "required": True},
        "wanted": {"type": "str", "default": ""},
        "nodes": {"type": "list", "elements": "dict", "default": []},
    },
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_info)


if __name__ == "__main__":
    main()
