#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: admin_certificate
short_description: Sign an admin's certificate request on a control plane
version_added: 0.2.0
description:
  - Signs the request of M(attested.kubernetes.admin_kubeconfig) with the cluster CA of this control plane. The result
    is a client certificate with the user O(name), the groups O(groups) and a lifetime of O(hours). Only the public key
    is taken from the request.
  - The module fails with V(ADMIN_REQUEST_INVALID) if the common name of the request is not O(name), or if the request
    is not signed by its own key. It fails with V(OPTION_INVALID) for a user, a group or a lifetime that an admin must
    not have.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  request:
    description:
      - Certificate request (PEM) of an admin, whose key never leaves the admin's machine.
      - If unset, nothing is signed, and only the cluster CAs are returned.
    type: str
    default: ""
  name:
    description:
      - Name of the user. It must not begin with V(system:). Only the name of the site's own admin begins with
        V(attested:).
    type: str
    default: attested:admin
  groups:
    description:
      - Groups of the user. A group must not begin with V(system:) or V(attested:).
      - If unset, the site's own admin is in V(kubeadm:cluster-admins), which kubeadm binds to C(cluster-admin). Any
        other user is then in no group.
    type: list
    elements: str
  hours:
    description: Lifetime of the certificate in hours, from 1 to 8760.
    type: int
    default: 24
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details: The module changes nothing on the machine.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: Each run signs a new certificate, which changes nothing on the machine.
"""

EXAMPLES = r"""
- name: Sign the request of the site's own admin
  attested.kubernetes.admin_certificate:
    request: "{{ admin.request }}"
  register: signed

- name: Sign a certificate for a working day
  attested.kubernetes.admin_certificate:
    request: "{{ admin.request }}"
    hours: 8

- name: Sign the request of another user
  attested.kubernetes.admin_certificate:
    request: "{{ lookup('ansible.builtin.file', 'alice.csr') }}"
    name: alice
    groups: [developers]

- name: Read the cluster CAs
  attested.kubernetes.admin_certificate:
"""

RETURN = r"""
certificate:
  description: The signed certificate, PEM.
  returned: with O(request)
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
cluster_ca:
  description: The cluster CAs that this control plane trusts, PEM.
  returned: success
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "request": {"type": "str", "default": ""},
        "name": {"type": "str", "default": "attested:admin"},
        "groups": {"type": "list", "elements": "str"},
        "hours": {"type": "int", "default": 24},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.ca_rotation:run_admin_certificate"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
