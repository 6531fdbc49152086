#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_info
short_description: Say whether this machine can be an attested node, before anything is on it
version_added: 0.1.0
description:
  - Looks at the TPM, the logs of this boot, packages, kernel, cgroups, swap, ports, addresses, clock, memory and disk
    of this machine, and lists everything that is missing, each with what to do next.
  - Needs Python on the machine and no library beyond it. Checks that need a library are reported as skipped.
  - Changes nothing and does not fail because of what it finds; the caller decides. No key of the TPM is made or
    used.
  - Where C(/etc/attested/node.yml) exists, our own programs may run. Ports, disk space and another Kubernetes are then
    no finding.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  node_name:
    description: Name of the node, in the inventory and in the cluster.
    type: str
    required: true
  role:
    description: What it is to be.
    type: str
    choices: [control_plane, worker]
    required: true
  packages:
    description: Packages of the distribution that have to be installed.
    type: list
    elements: str
    required: true
  install_packages:
    description: Whether missing packages are installed later, so that they are worth a note only.
    type: bool
    default: false
  allow_cgroup_v1:
    description: Whether cgroup v1 is good enough, which Kubernetes itself no longer supports.
    type: bool
    default: false
  ignore_preflight_errors:
    description: Checks of kubeadm that will be ignored; of them V(NumCPU) and V(Mem) matter here.
    type: list
    elements: str
    default: []
  node_ip:
    description: Address that the nodes call this one by.
    type: str
    required: true
  api_endpoint:
    description: Where nodes reach the API server, host:port; the host has to have an address.
    type: str
    required: true
  ports:
    description: TCP ports that have to be free.
    type: list
    elements: int
    default: []
  peers:
    description: Ports of other machines, host:port, that have to answer. A refused connection is an answer.
    type: list
    elements: str
    default: []
  python_version:
    description: Minor version of Python of which the bundle has, or will have, the wheels for this machine.
    type: str
    default: "3.11"
  pod_security:
    description: What Pods are to be held to; V(privileged), which is nothing, is a note.
    type: str
    choices: [baseline, restricted, privileged]
    default: baseline
  kubelet_serving_certificates:
    description:
      - Whether API servers are to demand that kubelets serve with the cluster's certificates. That they are not is a
        note.
    type: bool
    default: true
  state_disk:
    description:
      - Disk of the machine's state, below C(/dev/disk/by-id). It has to be there, unused, large enough, empty or ours;
        the kernel has to have dm-crypt and dm-integrity, and cryptsetup has to be 2.6 or newer.
      - The disk is read and left as it is.
      - Its packages are to be in O(packages). Empty for none.
    type: str
    default: ""
  state_disk_erase:
    description: The last part of that path where what is on the disk may go.
    type: str
    default: ""
  state_disk_minimum_bytes:
    description: The least size of that disk, V(0) for 16 GiB.
    type: int
    default: 0
  remote_tmp:
    description: The directory of Ansible on this machine, which has to be in memory.
    type: path
    required: true
  admin_time:
    description: Clock of the machine that asks, in seconds since 1970. A difference of half a minute is not noticed.
    type: float
    required: true
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.tpm
  - attested.kubernetes.tpm.logs
"""

EXAMPLES = r"""
- name: Check whether this machine can be a worker
  attested.kubernetes.preflight_info:
    node_name: "{{ inventory_hostname }}"
    role: worker
    packages: [containerd, nftables]
    node_ip: "{{ ansible_host }}"
    api_endpoint: api.prod.example:6443
    remote_tmp: /dev/shm/.ansible-admin
    admin_time: "{{ now(utc=true).timestamp() }}"
  register: machine

- name: Fail if a prerequisite is missing
  ansible.builtin.assert:
    that: machine.ready
    fail_msg: "{{ machine.findings | selectattr('level', 'equalto', 'missing') | map(attribute='text') | join('; ') }}"

- name: Check the ports of a control plane with a software TPM
  attested.kubernetes.preflight_info:
    node_name: cp-1
    role: control_plane
    packages: [containerd, nftables]
    node_ip: 10.0.0.11
    api_endpoint: api.prod.example:6443
    ports: [6443, 2379, 2380, 9090, 9091, 10250]
    peers: ["10.0.0.12:22", "10.0.0.13:22"]
    tcti: swtpm:path=/srv/tpm/tpm
    remote_tmp: /dev/shm/.ansible-admin
    admin_time: "{{ now(utc=true).timestamp() }}"
"""

RETURN = r"""
ready:
  description: Whether no finding has the level V(missing).
  returned: success
  type: bool
  sample: false
findings:
  description:
    - What is C(missing), then what is worth a C(note), then what was C(not looked at). Each has C(level), C(check),
      C(text) and C(next_step).
  returned: success
  type: list
  elements: dict
  sample:
    - level: missing
      check: tpm
      text: "expected a TPM at /dev/tpmrm0, got: No such file or directory"
      next_step: "Enable the TPM 2.0 in the firmware; attested_tcti is device:/dev/tpmrm0."
machine:
  description: Figures of the machine, for people.
  returned: success
  type: dict
  sample:
    architecture: x86_64
    python: "3.11"
    processors: 8
    memory_bytes: 16777216000
    free_bytes: {"/opt": 90000000000, "/var/lib": 90000000000}
    cgroup_version: 2
    tpm: IFX SLB9670
    ek_certificates: ["RSA-2048 (L-1)"]
    secure_boot: true
    nodelock: unlocked
    prepared: false
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.preflight import run_preflight
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    run_module,
    tpm_logs_spec,
    tpm_spec,
)

SPEC = ArgumentSpec(
    options={
        "admin_time": {"type": "float", "required": True},
        "allow_cgroup_v1": {"type": "bool", "default": False},
        "api_endpoint": {"type": "str", "required": True},
        "ignore_preflight_errors": {"type": "list", "elements": "str", "default": []},
        "install_packages": {"type": "bool", "default": False},
        "node_ip": {"type": "str", "required": True},
        "kubelet_serving_certificates": {"type": "bool", "default": True},
        "node_name": {"type": "str", "required": True},
        "packages": {"type": "list", "elements": "str", "required": True},
        "peers": {"type": "list", "elements": "str", "default": []},
        "python_version": {"type": "str", "default": "3.11"},
        "pod_security": {"type": "str", "choices": ["baseline", "restricted", "privileged"], "default": "baseline"},
        "ports": {"type": "list", "elements": "int", "default": []},
        "remote_tmp": {"type": "path", "required": True},
        "role": {"type": "str", "choices": ["control_plane", "worker"], "required": True},
        "state_disk": {"type": "str", "default": ""},
        "state_disk_erase": {"type": "str", "default": ""},
        "state_disk_minimum_bytes": {"type": "int", "default": 0},
    }
).merged(tpm_spec(), tpm_logs_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_preflight)


if __name__ == "__main__":
    main()
