#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: admin_kubeconfig
short_description: Make an admin's kubeconfig without its key ever leaving the admin's machine
version_added: 0.1.0
description:
  - Without O(certificate) and O(sign) it returns a certificate request for the key of the site's own admin, which is
    made on first use and kept as an Ansible Vault file in C(.secrets/) of the site.
  - It returns none while a quarter of the life of the present certificate is left, and the kubeconfig names the CAs of
    O(cluster_ca), the first of which signed that, where they are given.
  - With O(certificate) it writes C(.secrets/admin.kubeconfig), encrypted, with key and certificate embedded.
  - With O(sign) it does both, for the site's own or a further admin, and has the control plane of the task sign by
    M(attested.kubernetes.admin_certificate). Only the request leaves the machine. A certificate for another key, user,
    group or CA than was asked for is not kept (V(INIT_CERTIFICATE_FOREIGN), V(INIT_CERTIFICATE_UNUSABLE)).
  - With O(sign) a new certificate is due without a kubeconfig, with less than a quarter of its life left, for other
    groups, hours or CAs, and with O(renew). Otherwise nothing is signed.
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
      - With O(certificate) the file is written again, because a new encryption gives other bytes.
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
  sign:
    description: Whether the control plane of the task signs the request.
    type: bool
  admin:
    description:
      - User name of a further admin, whose kubeconfig is C(.secrets/admin-NAME.kubeconfig). Unset for the site's own.
      - It begins with neither V(system:) nor V(attested:), or it fails with V(OPTION_INVALID).
    type: str
  groups:
    description:
      - Groups of the further admin, none of which begins with V(system:). RBAC gives rights to a group or to the user.
      - Unset, the groups of the present certificate stay, and a first one has none. An empty list is for none.
    type: list
    elements: str
  hours:
    description: How long a certificate is good, 1 to 8760. Unset, as long as the present one, and a first one for 24.
    type: int
  renew:
    description: Whether a new certificate is due in any case.
    type: bool
  file:
    description:
      - File for the kubeconfig in clear, with mode 0600. It must be outside of the site.
      - A file that is not an earlier kubeconfig of this user and cluster is kept (V(OPTION_INVALID)).
    type: path
  merge:
    description:
      - Whether the kubeconfig is merged, in clear, into the first file of the variable E(KUBECONFIG), or
        C(~/.kube/config), as the context C(NAME@CLUSTER). It becomes the current one only where there is none.
      - Everything else in the file stays, but for comments. A file that cannot be read is left alone
        (V(OPTION_INVALID)).
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

- name: Renew the kubeconfig of a further admin where that is due
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
  returned: without O(certificate) and O(sign), where a new one is due
  type: str
  sample: "-----BEGIN CERTIFICATE REQUEST-----"
path:
  description: The kubeconfig.
  returned: with O(certificate) or O(sign)
  type: str
  sample: /srv/sites/prod/.secrets/admin.kubeconfig
said:
  description: What was written, or would be, and why a certificate was due.
  returned: with O(sign)
  type: list
  elements: str
  sample: ["/srv/sites/prod/.secrets/admin-alice.kubeconfig, encrypted"]
"""
