#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_certificates
short_description: Renew the certificates of this control plane
version_added: 0.2.0
description:
  - Renews the certificates that C(kubeadm) created for the API server, etcd, the controller manager, the scheduler and
    C(admin.conf), when 60 days or less are left (a third of a shorter lifetime). Each component is restarted with its
    new certificates. C(super-admin.conf) is not renewed and is not created again.
  - Components are renewed one after the other. A component is renewed only if it is healthy before
    (V(CONTROL_PLANE_COMPONENT_UNHEALTHY)), and etcd only if all of its members are (V(ETCD_MEMBER_UNHEALTHY)). Only one
    control plane of a cluster renews at a time. If another control plane has the turn for five minutes, the module
    fails with V(CONTROL_PLANE_JOIN_BUSY).
  - If C(kubeadm) fails, or creates a certificate that is not valid, the previous files are restored and the module
    fails with V(CONTROL_PLANE_RENEWAL_FAILED). If a component is not healthy with its new certificates, it is started
    with the previous files and the module fails with V(CONTROL_PLANE_RENEWAL_UNDONE). The run after a killed run starts
    again from the previous files.
  - A CA is never renewed. If a CA expires within the same time, the module fails with V(CONTROL_PLANE_CA_ENDS) after
    everything else was done. In check mode this is a warning.
  - The module fails with V(CONTROL_PLANE_CERTIFICATE_EARLY) if the clock is before the start of a certificate or CA,
    and with V(CONTROL_PLANE_CERTIFICATE_MALFORMED) if files are missing. It fails with
    V(CONTROL_PLANE_MANIFEST_MALFORMED) if the manifests were not written by C(kubeadm), and with V(NODELOCK_NOT_HELD)
    if the machine is not locked to its cluster.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  at_once:
    description: If true, all certificates are renewed, even if they are not due.
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
  description: Certificates that were renewed, or in check mode would be renewed, by their C(kubeadm) names.
  returned: success
  type: list
  elements: str
  sample: [apiserver, apiserver-etcd-client]
certificates:
  description: All certificates in their present state.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the certificate in C(kubeadm).
      type: str
    serial:
      description: Serial number, hexadecimal.
      type: str
    expires:
      description: End of the certificate, or of its CA if the CA ends first, ISO 8601.
      type: str
    renews:
      description: Time from which the certificate is due, ISO 8601.
      type: str
  sample:
    - name: apiserver
      serial: 542e27e84c1a5982
      expires: "2027-11-21T12:00:00+00:00"
      renews: "2027-09-22T12:00:00+00:00"
expires:
  description: Time at which the first of them expires, ISO 8601.
  returned: success
  type: str
  sample: "2027-11-21T12:00:00+00:00"
steps:
  description: Steps that were run, in order. Empty if nothing was done.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The component; V(files) if no component has to be restarted.
      type: str
    title:
      description: Description of the step.
      type: str
    seconds:
      description: Duration of the step in seconds.
      type: float
    changed:
      description: Whether the step changed the machine.
      type: bool
  sample:
    - name: etcd
      title: Renew the certificates of etcd and restart it (etcd-peer)
      seconds: 31.2
      changed: true
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_renewal import (
        run_control_plane,  # noqa: F401
    )

SPEC = ArgumentSpec(options={"at_once": {"type": "bool", "default": False}}).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.control_plane_renewal:run_control_plane"), libraries=("cryptography", "yaml"))


if __name__ == "__main__":
    main()
