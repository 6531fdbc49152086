#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: admin_certificate
short_description: Sign an admin"s certificate request on a control plane
version_added: 0.1.0
description:
  - Signs the request of M(attested.kubernetes.admin_kubeconfig) with the cluster CA of this control plane, as
    M(attested.kubernetes.kubeadm_cluster) does when it makes one. Of the request only the common name counts; one that
    begins with V(system:) fails with V(ADMIN_REQUEST_INVALID).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  request:
    description: Certificate request (PEM) of an admin, whose key never leaves the admin"s machine.
    type: str
    required: true
  hours:
    description: How long the certificate is good.
    type: int
    default: 24
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details: It changes nothing on the machine.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: Each run signs a new certificate, which changes nothing on the machine.
"""

EXAMPLES = r"""
- name: Sign it
  attested.kubernetes.admin_certificate:
    request: "{{ admin.request }}"
  register: signed

- name: Sign one for a working day
  attested.kubernetes.admin_certificate:
    request: "{{ admin.request }}"
    hours: 8

- name: Sign what somebody else asked for
  attested.kubernetes.admin_certificate:
    request: "{{ lookup('ansible.builtin.file', 'alice.csr') }}"
"""

RETURN = r"""
certificate:
  description: The signed certificate, PEM.
  returned: success
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
cluster_ca:
  description: The cluster CAs that this control plane believes, PEM.
  returned: success
  type: str
  sample: "-----BEGIN CERTIFICATE-----..."
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(options={"request": {"type": "str", "required": True}, "hours": {"type": "int", "default": 24}})


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.ca_rotation:run_admin_certificate"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
