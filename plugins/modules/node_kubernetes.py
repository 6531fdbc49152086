#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_kubernetes
short_description: Upgrade Kubernetes of a member to a prepared release
version_added: 0.2.0
description:
  - Runs C(kubeadm upgrade) of O(release), installs its programs, and restarts containerd, if it was replaced, and the
    kubelet. On a control plane the command is C(kubeadm upgrade apply) while the cluster has an older version, else
    C(kubeadm upgrade node).
  - The static Pods run the images of O(images) by digest. Certificates are not renewed.
  - The module waits until containerd offers its interface for Kubernetes, the static Pods are healthy and the kubelet
    reports the new version and C(Ready). If that does not happen, the manifests, the kubelet's configuration and the
    programs of before are put back, and the module fails with V(KUBERNETES_NOT_HEALTHY). C(kubeadm) itself puts etcd
    back, with its data.
  - The Pods of the node are not drained; run the module with O(until=configuration), drain the node if RV(drain) is
    true, then run it again.
  - Fails with V(RELEASE_NOT_PREPARED), V(RELEASE_DOWNGRADE) or V(RELEASE_SKEW) and changes nothing if the node does not
    have the release, runs a newer one, or is a control plane of more than one minor version before.
  - Fails with V(ETCD_MEMBER_UNHEALTHY) and changes nothing if a member of etcd is not healthy before C(kubeadm)
    upgrades a control plane. The module waits a minute for it, and not at all in check mode.
  - With O(step) only the static Pods are upgraded, to a release that control planes go through before O(release); the
    kubelet waits for O(release), and so do the Pods that C(kubeadm) installs on all nodes. A control plane that is past
    the step is left as it is.
  - A run that was cut off is done again by the next.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  release:
    description: Name of the release, as M(attested.kubernetes.kubernetes_components) returns it.
    type: str
    required: true
  role:
    description: What kind of node this is.
    type: str
    choices: [control_plane, worker]
    required: true
  images:
    description: The images of the release's bundle, each with C(component), C(reference) and C(digest).
    type: list
    elements: dict
    default: []
  step:
    description: Version of a release on the way to O(release), as its bundle has it; with O(images) of this step.
    type: str
    default: ""
  after:
    description: >-
      In check mode, take the control plane as upgraded to this version; empty where no step comes before.
    type: str
    default: ""
  until:
    description: V(configuration) leaves the programs and the kubelet as they are.
    type: str
    choices: [configuration, kubelet]
    default: kubelet
  ignore_preflight_errors:
    description: Preflight checks of kubeadm to ignore.
    type: list
    elements: str
    default: []
  allow_cgroup_v1:
    description: Accept a machine whose kernel has control groups of version 1 only.
    type: bool
    default: false
  containerd:
    description:
      - Whether containerd is one of the programs. With V(distribution) it stays as it is, whatever O(release) has.
    type: str
    choices: [bundle, distribution]
    default: bundle
  path:
    description: The link to the environment in use; the releases lie beside it.
    type: path
    default: /opt/attested/venv
  wait_seconds:
    description: How long to wait for a healthy node, and again after everything was put back.
    type: int
    default: 300
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Show what an upgrade would do
  attested.kubernetes.node_kubernetes:
    release: 9f2c1d5e9f2c
    role: worker
  check_mode: true
  diff: true

- name: Upgrade the kubelet's configuration
  attested.kubernetes.node_kubernetes:
    release: 9f2c1d5e9f2c
    role: worker
    until: configuration

- name: Upgrade the static Pods to the release before
  attested.kubernetes.node_kubernetes:
    release: 9f2c1d5e9f2c
    role: control_plane
    step: 1.36.3

- name: Replace the kubelet of the drained node
  attested.kubernetes.node_kubernetes:
    release: 9f2c1d5e9f2c
    role: worker
"""

RETURN = r"""
release:
  description: The release that the node was brought to.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c
version:
  description: Kubernetes version of the release.
  returned: success
  type: str
  sample: 1.36.3
before:
  description: Version of the kubelet before the upgrade.
  returned: success
  type: str
  sample: 1.35.4
drain:
  description: Whether the kubelet has to be replaced, for which the Pods are drained first.
  returned: success
  type: bool
  sample: true
steps:
  description: What was done, with the time that it took.
  returned: success
  type: list
  elements: dict
  sample: [{name: node, title: Upgrade by kubeadm upgrade node, seconds: 8.2, changed: true}]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)

SPEC = ArgumentSpec(
    options={
        "release": {"type": "str", "required": True},
        "role": {"type": "str", "choices": ["control_plane", "worker"], "required": True},
        "images": {"type": "list", "elements": "dict", "default": []},
        "step": {"type": "str", "default": ""},
        "after": {"type": "str", "default": ""},
        "until": {"type": "str", "choices": ["configuration", "kubelet"], "default": "kubelet"},
        "ignore_preflight_errors": {"type": "list", "elements": "str", "default": []},
        "allow_cgroup_v1": {"type": "bool", "default": False},
        "containerd": {"type": "str", "choices": ["bundle", "distribution"], "default": "bundle"},
        "path": {"type": "path", "default": "/opt/attested/venv"},
        "wait_seconds": {"type": "int", "default": 300},
    }
).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.upgrade:run_kubernetes"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
