#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_status_info
short_description: Read how far this machine has come into the cluster, and what it waits for
version_added: 0.2.0
description:
  - Reads the node's journal, the marker of the lock, the kubelet's unit and its certificate. The module does not use
    the TPM.
  - The command C(attested status) prints the same on the machine.
  - Reports a failed renewal of the kubelet's certificate by its reason code, with the time of the next retry. An admin
    is needed if the renewal was refused, if this machine or its clock is wrong, or if less than twelve hours are left.
  - A node whose last pushed evidence was refused keeps running and needs an admin (V(EVIDENCE_REFUSED)). Either the
    node was revoked, or no active profile allows its boot. The node does not know which of the two is the cause.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.node_config
"""

EXAMPLES = r"""
- name: Read the status of this node
  attested.kubernetes.node_status_info:
  register: node

- name: Fail if an admin is needed
  ansible.builtin.fail:
    msg: "{{ node.to_do }}"
  when: node.needs_person

- name: Show when the kubelet's certificate expires
  ansible.builtin.debug:
    var: node.certificate_expires
"""

RETURN = r"""
node:
  description: Name of the node in its configuration.
  returned: success
  type: str
  sample: w-1
phase:
  description: Phase of the machine, one of V(Fresh), V(Asking), V(Locked), V(Joining) and V(Joined).
  returned: success
  type: str
  sample: Joined
since:
  description: Time at which the phase began, ISO 8601.
  returned: success
  type: str
  sample: "2026-11-21T12:00:00+00:00"
reason:
  description: Reason code of the last failure, or V(EVIDENCE_REFUSED) for a running node. Null after a success.
  returned: success
  type: str
  sample: PCR_MISMATCH
message:
  description: Expected and found value of the last failure.
  returned: success
  type: str
  sample: expected PCR 9 to be an allowed value, got another one
next_try:
  description: Time of the next automatic retry.
  returned: success
  type: str
  sample: "2026-11-21T12:00:30+00:00"
locked:
  description: Whether the machine is locked to its cluster in this boot.
  returned: success
  type: bool
  sample: true
kubelet_active:
  description: Whether the kubelet runs.
  returned: success
  type: bool
  sample: true
bootstrapper_active:
  description: Whether C(attested-bootstrapper) runs, or will be started again by systemd.
  returned: success
  type: bool
  sample: false
certificate_expires:
  description: Time at which the kubelet's client certificate expires.
  returned: success
  type: str
  sample: "2026-11-24T12:00:00+00:00"
certificate_renews:
  description: Time from which the machine renews that certificate itself.
  returned: success
  type: str
  sample: "2026-11-23T12:00:00+00:00"
control_plane_expires:
  description:
    - On a control plane, the time at which the first of its own certificates (API server, etcd, controllers) expires.
  returned: success
  type: str
  sample: "2027-11-21T12:00:00+00:00"
control_plane_first:
  description: Name of that certificate in kubeadm.
  returned: success
  type: str
  sample: apiserver
api:
  description: >-
    State of the local API proxy of the kubelet, with the control plane that answered last and the known control planes.
    Null on a machine without a proxy.
  returned: success
  type: str
  sample: "10.0.0.12:6443 answered last; known: 10.0.0.11:6443, 10.0.0.12:6443"
kubernetes_version:
  description: Version of Kubernetes that the last ticket named.
  returned: success
  type: str
  sample: 1.35.4
disk_id:
  description: Id of the disk that was assigned to this machine.
  returned: success
  type: str
  sample: 7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69
to_do:
  description: What an admin has to do. V(Nothing.) if nothing is needed.
  returned: success
  type: str
  sample: Nothing.
needs_person:
  description: Whether an admin is needed.
  returned: success
  type: bool
  sample: false
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import Form, node_config_spec, run_form

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.node.status_info import run_status  # noqa: F401

SPEC = node_config_spec()
FORM = Form(spec=SPEC, run=installed("node.status_info:run_status"), libraries=("cryptography", "yaml"))


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
