#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_info
short_description: Check whether this machine can become an attested node
version_added: 0.2.0
description:
  - Checks the TPM, the logs of this boot, packages, kernel, cgroups, swap, ports, addresses, clock, memory and disk of
    this machine. The module lists everything that is missing, each with the next step.
  - A running firewalld that does not open the ports, and SELinux that enforces its policy, are reported as notes.
  - Requires Python on the machine and no further library. Checks that need a library are reported as skipped.
  - The module changes nothing and does not fail because of a finding. The caller decides. No key of the TPM is created
    or used.
  - If C(/etc/attested/node.yml) exists, programs of this collection may run. Then used ports, the disk space and an
    installed Kubernetes are not findings.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  node_name:
    description: Name of the node, in the inventory and in the cluster.
    type: str
    required: true
  role:
    description: Intended role of the machine.
    type: str
    choices: [control_plane, worker]
    required: true
  packages:
    description: Packages of the distribution that have to be installed.
    type: list
    elements: str
    required: true
  install_packages:
    description: If true, missing packages are installed later, and are reported as notes only.
    type: bool
    default: false
  allow_cgroup_v1:
    description: If true, cgroup v1 is accepted, which Kubernetes itself no longer supports.
    type: bool
    default: false
  ignore_preflight_errors:
    description: Checks of kubeadm that will be ignored. Only V(NumCPU) and V(Mem) are used here.
    type: list
    elements: str
    default: []
  node_ip:
    description: Address at which other nodes reach this machine.
    type: str
    required: true
  second_node_ip:
    description: Address of this machine in the other address family, in a cluster with IPv4 and IPv6.
    type: str
    default: ""
  pod_subnet:
    description: Network of the pods, as in M(attested.kubernetes.kubeadm_cluster).
    type: str
    default: 10.244.0.0/16
  service_subnet:
    description: Network of the services, as in M(attested.kubernetes.kubeadm_cluster).
    type: str
    default: 10.96.0.0/16
  api_endpoint:
    description: Address of the API server for nodes, host:port. The host must resolve to an address.
    type: str
    required: true
  ports:
    description: TCP ports that must be free.
    type: list
    elements: int
    default: []
  peers:
    description: Ports of other machines, host:port, that must answer. A refused connection counts as an answer.
    type: list
    elements: str
    default: []
  architecture:
    description: Machine type of which the bundle has, or will have, the programs for this machine.
    type: str
    choices: [amd64, arm64]
    default: amd64
  python_version:
    description: Minor version of Python for which the bundle has, or will have, the wheels of this machine.
    type: str
    default: "3.11"
  pod_security:
    description: Level that will be enforced on Pods. V(privileged), which enforces nothing, is reported as a note.
    type: str
    choices: [baseline, restricted, privileged]
    default: baseline
  kubelet_serving_certificates:
    description:
      - Whether API servers will require serving certificates of the cluster from kubelets. If false, a note is
        reported.
    type: bool
    default: true
  state_disk:
    description:
      - Path of the disk for the machine's state, below C(/dev/disk/by-id). The disk must exist, be unused and large
        enough, and be empty or a state disk of this machine. The kernel must have dm-crypt and dm-integrity, and
        cryptsetup must be 2.6 or newer.
      - The disk is read and not changed.
      - List the packages that it needs in O(packages). Empty if there is no state disk.
    type: str
    default: ""
  state_disk_erase:
    description: Last part of the path in O(state_disk), if the data on the disk may be erased.
    type: str
    default: ""
  state_disk_minimum_bytes:
    description: Minimum size of that disk in bytes, V(0) for 16 GiB.
    type: int
    default: 0
  remote_tmp:
    description: Temporary directory of Ansible on this machine, which must be in memory.
    type: path
    required: true
  admin_time:
    description:
      - Time of the machine that runs the playbook, in seconds since 1970. A difference of up to half a minute is
        ignored.
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
    - First what is C(missing), then what is worth a C(note), then what was C(not looked at). Each finding has C(level),
      C(check), C(text) and C(next_step).
  returned: success
  type: list
  elements: dict
  sample:
    - level: missing
      check: tpm
      text: "expected a TPM at /dev/tpmrm0, got: No such file or directory"
      next_step: "Enable the TPM 2.0 in the firmware; attested_tcti is device:/dev/tpmrm0."
machine:
  description: Facts about the machine for people.
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
        "architecture": {"type": "str", "choices": ["amd64", "arm64"], "default": "amd64"},
        "ignore_preflight_errors": {"type": "list", "elements": "str", "default": []},
        "install_packages": {"type": "bool", "default": False},
        "node_ip": {"type": "str", "required": True},
        "kubelet_serving_certificates": {"type": "bool", "default": True},
        "node_name": {"type": "str", "required": True},
        "packages": {"type": "list", "elements": "str", "required": True},
        "peers": {"type": "list", "elements": "str", "default": []},
        "pod_subnet": {"type": "str", "default": "10.244.0.0/16"},
        "python_version": {"type": "str", "default": "3.11"},
        "pod_security": {"type": "str", "choices": ["baseline", "restricted", "privileged"], "default": "baseline"},
        "ports": {"type": "list", "elements": "int", "default": []},
        "remote_tmp": {"type": "path", "required": True},
        "role": {"type": "str", "choices": ["control_plane", "worker"], "required": True},
        "second_node_ip": {"type": "str", "default": ""},
        "service_subnet": {"type": "str", "default": "10.96.0.0/16"},
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
