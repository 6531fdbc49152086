#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: admin_kubeconfig
short_description: Make the admin's kubeconfig without its key ever leaving the admin's machine
version_added: 0.1.0
description:
  - Without O(certificate) it returns a certificate request for the admin's key, which is made on first use and kept as
    an Ansible Vault file in C(.secrets/) of the site; it returns none while the kubeconfig is good for six more hours,
    and names the CAs of O(cluster_ca), the first of which signed its certificate, where that is given.
  - With O(certificate) it writes C(.secrets/admin.kubeconfig), encrypted, with key and certificate embedded.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - With a certificate the file is written anew, because encrypting it again gives other bytes.
options:
  cluster_name:
    description: Name of the cluster in the kubeconfig.
    type: str
  server:
    description: Where the API server is reached, as C(host:port).
    type: str
  tls_server_name:
    description: The name that the API server's certificate must have.
    type: str
  cluster_ca:
    description: The cluster CA in PEM, or both in a rotation, the one that signs first.
    type: str
  certificate:
    description: The signed certificate in PEM.
    type: str
"""

EXAMPLES = r"""
- name: Create a certificate request
  attested.kubernetes.admin_kubeconfig:
    site: "{{ inventory_dir }}"
  register: admin

- name: Write the kubeconfig
  attested.kubernetes.admin_kubeconfig:
    site: "{{ inventory_dir }}"
    cluster_name: prod
    server: api.prod.example:6443
    tls_server_name: api.prod.example
    cluster_ca: "{{ cluster.cluster_ca }}"
    certificate: "{{ cluster.admin_certificate }}"

- name: Check whether a kubeconfig exists
  attested.kubernetes.admin_kubeconfig:
    site: "{{ inventory_dir }}"
  check_mode: true
"""

RETURN = r"""
request:
  description: The certificate request in PEM.
  returned: without certificate, where a new one is due
  type: str
  sample: "-----BEGIN CERTIFICATE REQUEST-----"
path:
  description: The kubeconfig.
  returned: with certificate
  type: str
  sample: /srv/sites/prod/.secrets/admin.kubeconfig
"""
