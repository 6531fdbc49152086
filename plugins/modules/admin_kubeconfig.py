#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: admin_kubeconfig
short_description: Create an admin's kubeconfig, whose private key stays on the admin's machine
version_added: 0.2.0
description:
  - Without O(certificate) and O(sign) the module returns a certificate request for the key of the site's own admin. The
    key is created on first use and stored as an Ansible Vault file in C(.secrets/) of the site.
  - No request is returned while the present certificate has at least a quarter of its lifetime left. If O(cluster_ca)
    is set, the kubeconfig must also contain these CAs, and the first of them must have signed the certificate.
  - With O(certificate) the module writes C(.secrets/admin.kubeconfig), encrypted, with the key and the certificate
    embedded.
  - With O(sign) the module does both, for the site's own or a further admin. The control plane of the task signs the
    request (M(attested.kubernetes.admin_certificate)). Only the request leaves the machine. A certificate for another
    key, user, group or CA than requested is discarded (V(INIT_CERTIFICATE_FOREIGN), V(INIT_CERTIFICATE_UNUSABLE)).
  - With O(sign) a new certificate is signed if there is no kubeconfig, or if less than a quarter of the lifetime is
    left. A new certificate is also signed for other groups, hours or CAs, and with O(renew). Otherwise nothing is
    signed.
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
      - With O(certificate) the file is always written, because each encryption produces different bytes.
options:
  cluster_name:
    description: Name of the cluster in the kubeconfig.
    type: str
  server:
    description: Address of the API server, as C(host:port).
    type: str
  tls_server_name:
    description: The name that the API server's certificate must have.
    type: str
  cluster_ca:
    description: Certificate of the cluster CA in PEM. During a rotation both CAs, the signing CA first.
    type: str
  certificate:
    description: The signed certificate in PEM.
    type: str
  sign:
    description: If true, the control plane of the task signs the request.
    type: bool
  admin:
    description:
      - User name of a further admin, whose kubeconfig is C(.secrets/admin-NAME.kubeconfig). If unset, the kubeconfig is
        that of the site's own admin.
      - The module fails with V(OPTION_INVALID) if the name begins with V(system:) or V(attested:).
    type: str
  groups:
    description:
      - Groups of the further admin. A group must not begin with V(system:). RBAC grants rights to a group or to the
        user.
      - If unset, a new certificate has the groups of the present certificate, and a first certificate has none. An
        empty list removes all groups.
    type: list
    elements: str
  hours:
    description:
      - Lifetime of a certificate in hours, from 1 to 8760. If unset, it is that of the present certificate, and 24 for
        a first certificate.
    type: int
  renew:
    description: If true, a new certificate is signed in any case.
    type: bool
  file:
    description:
      - Path of a file for the kubeconfig in clear text, with mode 0600. It must be outside the site.
      - The module fails with V(OPTION_INVALID) if the file exists and is not an earlier kubeconfig of this user and
        cluster.
    type: path
  merge:
    description:
      - If true, the kubeconfig is merged in clear text as the context C(NAME@CLUSTER). The target is the first file of
        the variable E(KUBECONFIG), or C(~/.kube/config). The context becomes the current context only if the file has
        none.
      - Everything else in the file is kept, except comments. The module fails with V(OPTION_INVALID) if the file cannot
        be read.
    type: bool
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

- name: Renew the kubeconfig of a further admin if it is due
  attested.kubernetes.admin_kubeconfig:
    site: "{{ inventory_dir }}"
    sign: true
    admin: alice
    groups: [developers]
    hours: 8
    file: /dev/shm/alice.kubeconfig
    cluster_name: prod
    server: api.prod.example:6443
    tls_server_name: api.prod.example

- name: Check whether a kubeconfig exists
  attested.kubernetes.admin_kubeconfig:
    site: "{{ inventory_dir }}"
  check_mode: true
"""

RETURN = r"""
request:
  description: The certificate request in PEM.
  returned: without O(certificate) and O(sign), if a new certificate is due
  type: str
  sample: "-----BEGIN CERTIFICATE REQUEST-----"
path:
  description: Path of the kubeconfig.
  returned: with O(certificate) or O(sign)
  type: str
  sample: /srv/sites/prod/.secrets/admin.kubeconfig
said:
  description: What was written, or would be written, and why a certificate was due.
  returned: with O(sign)
  type: list
  elements: str
  sample: ["/srv/sites/prod/.secrets/admin-alice.kubeconfig, encrypted"]
"""
