#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeadm_node
short_description: Turn this machine into a worker or a further control plane, or make it fresh again
version_added: 0.1.0
description:
  - V(joined) does what is left of one node's way, in its order. It fetches a ticket by proving what the machine is and
    has booted, locks the machine to its cluster, writes the kubelet's credential, runs kubeadm and waits for the Node.
  - No bootstrap token exists. Whatever stopped an earlier run (a failure, a kill, a reboot), the next one ends where
    that would have ended; of a node that is up nothing is changed, until its certificate has less than a day left.
  - A refusal comes back with its reason code; the full story is in the log of the join service.
  - The ticket of a further control plane also brings the files that control planes share, and what its key service
    holds. That is sealed to this machine as it was judged before it locks itself, as at init. One control plane joins
    at a time, the others wait.
  - A ticket for another Kubernetes version than kubeadm and kubelet of the machine have fails with
    V(RELEASE_NOT_PREPARED), and nothing is changed.
  - V(absent) takes Kubernetes off the machine and destroys the node's keys. The lock stays until the machine is reset.
    With O(state_disk) the disk is closed and its headers, key slots and end are overwritten, so nothing on it opens any
    more; a disk of others is refused.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: What the machine shall be.
    type: str
    choices: [joined, absent]
    default: joined
  node_ip:
    description:
      - Address by which the nodes of the cluster reach this one.
      - Required for V(joined); anything else than an IP address fails with V(OPTION_INVALID).
    type: str
    required: false
  role:
    description:
      - What the machine is to be; its identity must say the same, else the ticket is refused.
      - The first control plane is made by M(attested.kubernetes.kubeadm_cluster).
    type: str
    choices: [control-plane, worker]
    default: worker
  ticket:
    description:
      - Handle of a ticket that M(attested.kubernetes.join_ticket) fetched in this boot.
      - Without it the ticket is fetched when one is needed. An unknown handle fails with V(TICKET_HANDLE_UNKNOWN).
    type: str
  api_proxy:
    description:
      - Port of this machine by which the kubelet of a worker reaches the API, as V(127.0.0.1:6444); the role
        C(api_endpoint) installs what listens there. The certificate must still be for the endpoint's name.
      - Takes effect with the next ticket. Without it the kubelet dials the endpoint that the ticket names.
      - Fails with V(OPTION_INVALID) if it is not on loopback, or if nothing was installed there.
    type: str
  state_disk:
    description:
      - The state disk of a worker, by its path below C(/dev/disk/by-id). It is formatted at the first
        join alone and opened at each boot, with the ticket's key, before the machine is locked; see
        M(attested.kubernetes.state_disk), whose reason codes it fails with.
      - Its volume takes the place of C(/var/lib/kubelet), which has to be empty before (V(STATE_DISK_HIDES_DATA)). A
        machine that became a node without it fails with V(STATE_DISK_TOO_LATE), a control plane with
        V(STATE_DISK_OPTION).
      - Without it no disk is touched, and the key in the ticket is discarded.
    type: path
  state_disk_erase:
    description:
      - The last part of O(state_disk), which lets what another one left on the disk go, as long as this machine has not
        used it. Another name fails with V(STATE_DISK_OPTION).
    type: str
  state_disk_minimum_bytes:
    description: A disk smaller than this fails with V(STATE_DISK_TOO_SMALL); 16 GiB if absent.
    type: int
  wait_seconds:
    description: How long to ask again for a ticket that cannot be had yet, for example while the control plane starts.
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
  description: What was left to do, as a person reads it.
  returned: success
  type: list
  elements: str
  sample: [Fetch the ticket, Lock the machine to its cluster]
steps:
  description: What was done, in order; empty when nothing was.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Short name of the step.
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
  sample: [{name: certs, title: "Make the cluster's certificates", seconds: 1.2, changed: true}]
phase:
  description: How far the machine has come.
  returned: success
  type: str
  sample: Joined
kubernetes_version:
  description: Version of Kubernetes that the last ticket named; empty before the first.
  returned: when O(state=joined)
  type: str
  sample: 1.35.4
reboot_required:
  description: Whether the machine is still locked, so that it must be reset before it can join again.
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
