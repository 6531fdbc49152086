#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeadm_node
short_description: Join this machine as a worker or a further control plane, or reset it
version_added: 0.2.0
description:
  - V(joined) runs the steps that are left for the node, in their order. The machine fetches a ticket with its evidence
    and is locked to its cluster. Then the module writes the kubelet's credential, runs kubeadm and waits for the Node.
  - There is no bootstrap token. After a failure, a kill or a reboot, the next run continues and gives the same result.
    A node that is up is not changed until its certificate has less than a day left.
  - A refusal has its reason code. The log of the join service has the details.
  - The ticket of a further control plane also contains the files that control planes share, and the keys of the key
    service. These keys are sealed to the verified state of the machine before it is locked, as at init. Only one
    control plane joins at a time. The others wait.
  - The module fails with V(RELEASE_NOT_PREPARED), and changes nothing, if the ticket names another Kubernetes version
    than that of the installed kubeadm and kubelet.
  - V(absent) removes Kubernetes from the machine and destroys the node's keys. The machine stays locked until it is
    reset. With O(state_disk) the disk is closed, and its headers, key slots and end are overwritten, so that no key
    opens it any more. A disk of another node is refused.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: V(joined) makes the machine a node, V(absent) removes Kubernetes and the node's keys.
    type: str
    choices: [joined, absent]
    default: joined
  node_ip:
    description:
      - Address at which the nodes of the cluster reach this machine.
      - Required for V(joined). The module fails with V(OPTION_INVALID) if it is not an IP address.
    type: str
    required: false
  role:
    description:
      - Role of the machine. The ticket is refused if its identity has another role.
      - Use M(attested.kubernetes.kubeadm_cluster) for the first control plane.
    type: str
    choices: [control-plane, worker]
    default: worker
  ticket:
    description:
      - Handle of a ticket that M(attested.kubernetes.join_ticket) fetched in this boot.
      - If unset, a ticket is fetched when it is needed. The module fails with V(TICKET_HANDLE_UNKNOWN) for an unknown
        handle.
    type: str
  api_proxy:
    description:
      - Local address at which the kubelet of a worker reaches the API, for example V(127.0.0.1:6444). The role
        C(api_endpoint) installs the proxy at this address. The API server's certificate must still be for the name of
        the endpoint.
      - Used from the next ticket on. If unset, the kubelet connects to the endpoint that the ticket names.
      - The module fails with V(OPTION_INVALID) if the address is not on loopback, or if no proxy was installed there.
    type: str
  state_disk:
    description:
      - Path of the state disk of a worker, below C(/dev/disk/by-id). The disk is formatted at the first join only. It
        is opened at each boot with the key of the ticket, before the machine is locked. The module fails with the
        reason codes of M(attested.kubernetes.state_disk).
      - The volume replaces C(/var/lib/kubelet), which must be empty before (V(STATE_DISK_HIDES_DATA)). The module fails
        with V(STATE_DISK_TOO_LATE) if the machine became a node without the disk, and with V(STATE_DISK_OPTION) for a
        control plane.
      - If unset, no disk is used, and the key in the ticket is discarded.
    type: path
  state_disk_erase:
    description:
      - Last part of O(state_disk). It allows to erase data of another owner, unless this machine has already used the
        disk. The module fails with V(STATE_DISK_OPTION) for another name.
    type: str
  state_disk_minimum_bytes:
    description:
      - Minimum size of the disk; 16 GiB if unset. The module fails with V(STATE_DISK_TOO_SMALL) for a smaller disk.
    type: int
  wait_seconds:
    description:
      - How long requests are retried while no ticket is available, in seconds, for example while the control plane
        starts.
    type: int
    default: 60
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubeadm
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
- name: Join this machine as a worker
  attested.kubernetes.kubeadm_node:
    node_ip: 10.0.0.21

- name: Join this machine as a control plane
  attested.kubernetes.kubeadm_node:
    node_ip: 10.0.0.12
    role: control-plane

- name: Join a worker whose kubelet uses the local API proxy
  attested.kubernetes.kubeadm_node:
    node_ip: 10.0.0.21
    api_proxy: 127.0.0.1:6444

- name: Join a worker with a state disk
  attested.kubernetes.kubeadm_node:
    node_ip: 10.0.0.21
    state_disk: /dev/disk/by-id/nvme-eui.0025385b71b0c2d1

- name: Show the remaining steps without a change
  attested.kubernetes.kubeadm_node:
    node_ip: 10.0.0.21
  check_mode: true
  diff: true

- name: Join with a ticket of an earlier task
  attested.kubernetes.kubeadm_node:
    node_ip: 10.0.0.21
    ticket: "{{ fetched.handle }}"

- name: Reset the machine
  attested.kubernetes.kubeadm_node:
    state: absent
"""

RETURN = r"""
planned:
  description: Descriptions of the steps that were left to run.
  returned: success
  type: list
  elements: str
  sample: [Fetch the ticket, Lock the machine to its cluster]
steps:
  description: Steps that were run, in order. Empty if nothing was done.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Short name of the step.
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
  sample: [{name: certs, title: "Make the cluster's certificates", seconds: 1.2, changed: true}]
phase:
  description: Phase of the machine on its way into the cluster.
  returned: success
  type: str
  sample: Joined
kubernetes_version:
  description: Version of Kubernetes that the last ticket named. Empty before the first ticket.
  returned: when O(state=joined)
  type: str
  sample: 1.35.4
reboot_required:
  description: Whether the machine is still locked. It must then be reset before it can join again.
  returned: when O(state=absent)
  type: bool
  sample: true
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubeadm_spec,
    node_config_spec,
    run_module,
)

SPEC = (
    kubeadm_spec()
    .merged(node_config_spec())
    .merged(
        ArgumentSpec(
            options={
                "state": {"type": "str", "choices": ["joined", "absent"], "default": "joined"},
                "node_ip": {"type": "str"},
                "role": {"type": "str", "choices": ["control-plane", "worker"], "default": "worker"},
                "ticket": {"type": "str", "no_log": False},
                "wait_seconds": {"type": "int", "default": 60},
                "api_proxy": {"type": "str"},
                "state_disk": {"type": "path"},
                "state_disk_erase": {"type": "str"},
                "state_disk_minimum_bytes": {"type": "int"},
            },
            required_if=(("state", "joined", ("node_ip",)),),
        )
    )
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.client:run_node"), libraries=("cryptography", "grpc", "yaml"))


if __name__ == "__main__":
    main()
