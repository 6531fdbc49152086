#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_objects
short_description: Apply objects of the site to the cluster
version_added: 0.2.0
description:
  - Compares manifests with the cluster and applies those that differ. It uses server-side apply with the kubectl of
    this control plane, and waits until the API server serves new kinds.
  - Runs on a control plane. The module fails with V(KUBECTL_FAILED) and the last lines of kubectl.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  manifests:
    description: YAML documents, each with one or more objects, applied in this order.
    type: list
    elements: str
    required: true
  field_manager:
    description: Field manager that owns the fields that are set.
    type: str
    default: attested-site
  store_anew:
    description:
      - Also have the API server write all objects of the CustomResourceDefinitions in O(manifests) again, if etcd may
        hold some in another version than the one that is stored now, and note that it holds this version alone.
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
    details:
      - Objects of a kind that the cluster does not serve yet are reported as changed. All objects are reported as
        changed if the file O(kubeconfig) does not exist.
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Apply the profiles of the site
  attested.kubernetes.cluster_objects:
    manifests:
      - "{{ lookup('ansible.builtin.file', 'policy/r650-debian13.yml') }}"

- name: Apply a CRD, then an object of its kind
  attested.kubernetes.cluster_objects:
    manifests:
      - "{{ lookup('ansible.builtin.file', 'crd.yml') }}"
      - "{{ lookup('ansible.builtin.file', 'object.yml') }}"

- name: Show the differences between cluster and site
  attested.kubernetes.cluster_objects:
    manifests: "{{ site_manifests }}"
  check_mode: true
  diff: true
"""

RETURN = r"""
{}
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    Form,
    kubectl_spec,
    run_form,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import run_objects  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "manifests": {"type": "list", "elements": "str", "required": True},
        "field_manager": {"type": "str", "default": "attested-site"},
        "store_anew": {"type": "bool", "default": False},
    }
).merged(kubectl_spec())
FORM = Form(spec=SPEC, run=installed("kubeadm.cluster_info:run_objects"))


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
