#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_certificates
short_description: Renew the certificates of this control plane itself
version_added: 0.1.0
description:
  - Renews the certificates that C(kubeadm) made for API server, etcd, controller manager, scheduler and C(admin.conf),
    each by its name, when 60 days or less are left (a third of a shorter life), and restarts each component with
    them. C(super-admin.conf) is not among them and does not come back.
  - One component after the other, and each only where it was well before (V(CONTROL_PLANE_COMPONENT_UNHEALTHY)); etcd
    only where every member of it is (V(ETCD_MEMBER_UNHEALTHY)). One control plane of a cluster at a time; after five
    minutes of another one's turn it fails with V(CONTROL_PLANE_JOIN_BUSY).
  - Where C(kubeadm) fails, or leaves a certificate that is not good, the files before are put back
    (V(CONTROL_PLANE_RENEWAL_FAILED)). So are they where a component is not well with its new ones, and it is started
    with the files before (V(CONTROL_PLANE_RENEWAL_UNDONE)). A run that was killed is done again from the files before.
  - A CA is never renewed. One that ends within the same time fails the task after everything else was done, with
    V(CONTROL_PLANE_CA_ENDS); in check mode it is a warning.
  - A clock before the begin of a certificate or CA fails with V(CONTROL_PLANE_CERTIFICATE_EARLY), files that are
    missing with V(CONTROL_PLANE_CERTIFICATE_MALFORMED), manifests that are not C(kubeadm)'s with
    V(CONTROL_PLANE_MANIFEST_MALFORMED), a machine that is not locked to its cluster with V(NODELOCK_NOT_HELD).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  at_once:
    description: Renew all of them, also those that have time left.
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - With O(at_once=true) each run renews everything.
"""

EXAMPLES = r"""
- name: Renew the certificates that are due
  attested.kubernetes.control_plane_certificates:

- name: Show when the certificates expire
  attested.kubernetes.control_plane_certificates:
  check_mode: true
  register: found

- name: Renew all certificates, for example after a key was disclosed
  attested.kubernetes.control_plane_certificates:
    at_once: true
"""

RETURN = r"""
renewed:
  description: Certificates that were renewed, or in check mode would be, by C(kubeadm)'s names.
  returned: success
  type: list
  elements: str
  sample: [apiserver, apiserver-etcd-client]
certificates:
  description: All of them, as they are now.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name by which C(kubeadm) renews it.
      type: str
    serial:
      description: Serial number, hexadecimal.
      type: str
    expires:
      description: Until when it is of use, which is the end of its CA where that comes first; ISO 8601.
      type: str
    renews:
      description: From when on it is due.
      type: str
  sample:
    - name: apiserver
      serial: 542e27e84c1a5982
      expires: "2027-11-21T12:00:00+00:00"
      renews: "2027-09-22T12:00:00+00:00"
expires:
  description: When the first of them ends.
  returned: success
  type: str
  sample: "2027-11-21T12:00:00+00:00"
steps:
  description: What was done, in order; empty when nothing was.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The component; V(files) if no component has to be restarted.
      type: str
    title:
      description: What a person reads.
      type: str
    seconds:
      description: How long it took.
      type: float
    changed:
      description: Whether it changed the machine.
      type: bool
  sample:
    - name: etcd
      title: Renew the certificates of etcd and restart it (etcd-peer)
      seconds: 31.2
      changed: true
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_renewal import run_control_plane

SPEC = ArgumentSpec(options={"at_once": {"type": "bool", "default": False}}).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_control_plane, libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
