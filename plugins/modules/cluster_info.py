#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_info
short_description: Read nodes, identities and refusals of the cluster, and objects that must not exist
version_added: 0.2.0
description:
  - Reads with the kubectl of this control plane. Nodes and identities are one list. It shows machines that are enrolled
    and have not joined, and nodes that are not enrolled.
  - Lists objects that a cluster of this collection never has. These are pending certificate requests, bootstrap tokens,
    bindings that approve automatically, and rights of anonymous users.
  - Lists the C(JoinAttempt) objects of the cluster. The key service writes one object for each machine and reason after
    it has refused the machine, and keeps the latest hundred for two weeks. Nothing is decided from these objects, and
    the log of the key service may contain refusals that are not in this list.
  - The module fails with V(KUBECTL_FAILED) if the API server does not answer.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  deprecated_apis:
    description: If true, the metrics of each API server are read for RV(deprecated_apis).
    type: bool
    default: false
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.kubectl
"""

EXAMPLES = r"""
- name: Read the cluster
  attested.kubernetes.cluster_info:
  register: cluster

- name: Check that no machine can join with a token
  ansible.builtin.assert:
    that:
      - cluster.bootstrap_tokens | length == 0
      - cluster.auto_approval_bindings | length == 0

- name: List nodes that are not enrolled
  ansible.builtin.debug:
    msg: "{{ cluster.nodes | selectattr('identity', 'equalto', '') | map(attribute='name') }}"

- name: Print why one node does not join
  ansible.builtin.debug:
    msg: "{{ cluster.attempts | selectattr('node', 'equalto', 'w-1') | map(attribute='message') }}"
"""

RETURN = r"""
nodes:
  description: >-
    One row for each node name, from the Node object and the identity if they exist. C(refused) is the last refusal of
    the machine (C(reason), C(message) with register and event, C(command), C(count), C(last_seen)). It is empty if the
    evidence of the machine was accepted since. C(version) is that of the kubelet, C(api_version) that of the API server
    of a control plane.
  returned: success
  type: list
  elements: dict
  sample:
    - name: w-1
      registered: true
      ready: true
      ready_message: ""
      role: worker
      version: v1.35.4
      api_version: ""
      boot_id: 0c16b8e3-8b65-4e27-b22a-78248162dcca
      internal_ip: 10.0.0.21
      pod_cidr: 10.244.1.0/24
      identity: ek-0123456789abcdef0123
      admission: Approved
      phase: Joined
      profile: r650-debian13
      posture: boot
      attested: "2026-11-21T12:00:00Z"
      standing: EvidenceGood
      standing_status: "True"
      standing_message: "the last evidence was good; next: nothing"
      known_by: enroll
      refused: {}
attempts:
  description:
    - Refused attempts to join, one row for each object, the latest first.
    - A machine that did not prove its endorsement key is a V(stranger). All strangers share one object for each reason.
    - C(command) is the next command to run. It is empty in objects of an earlier release.
  returned: success
  type: list
  elements: dict
  sample:
    - name: ek-9f2c1d5e9f2c1d5e9f2c-pcr-mismatch
      machine: ek-9f2c1d5e9f2c1d5e9f2c
      node: w-1
      ek_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
      reason: PCR_MISMATCH
      message: "expected PCR 9 to be an allowed value, got another one"
      command: ansible-playbook attested.kubernetes.policy
      correlation_id: 4f1c2f0e
      count: 3
      first_seen: "2026-11-21T11:00:00Z"
      last_seen: "2026-11-21T12:00:00Z"
waiting:
  description: Unknown machines that proved their key and wait for an admin, the oldest first.
  returned: success
  type: list
  elements: dict
  sample:
    - identity: ek-9f2c1d5e9f2c1d5e9f2c
      claims: w-7
      since: "2026-11-21T12:00:00Z"
      known_by: "queue: proved its key 2026-11-21T12:00:00Z, nobody vouches for it"
policy:
  description: The policy in force, empty without a policy. This module does not verify its signature.
  returned: success
  type: dict
  sample:
    generation: 7
    profiles: [r650-debian13]
    revoked: 0
    revocations_unsigned: []
    exceptions: [{"profile": "r650-debian13-old", "nodes": ["w-1"], "until": "2026-11-22T12:00:00Z", "why": "firmware"}]
    seen_by: {"cp-1": 7}
    unreadable: []
    weaknesses: []
deprecated_apis:
  description:
    - Deprecated APIs that clients have requested from an API server since it started. Empty unless O(deprecated_apis)
      is true.
    - C(removed) is the release that does not serve the API any more, empty if it is not known.
  returned: success
  type: list
  elements: dict
  sample: [{api: "policy/v1beta1 podsecuritypolicies", removed: "1.25"}]
secrets_written_with:
  description:
    - Name of the key that this control plane encrypts Secrets at rest with. V(identity) if Secrets are written in
      clear, empty if the file was not created by init or a rotation.
  returned: success
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
guards:
  description:
    - Restrictions that the API server of this control plane enforces on Pods, Services and kubelets. C(pod_security) is
      V(privileged) if nothing is enforced on Pods. It is empty if the admission configuration was not written by this
      collection.
  returned: success
  type: dict
  sample:
    pod_security: baseline
    exempt_namespaces: [kube-flannel, kube-system]
    external_ips_denied: true
    kubelets_checked: true
pending_requests:
  description: Certificate requests that wait for approval.
  returned: success
  type: list
  elements: str
  sample: []
bootstrap_tokens:
  description: Secrets that are bootstrap tokens.
  returned: success
  type: list
  elements: str
  sample: []
auto_approval_bindings:
  description: Bindings that approve certificates automatically, or let machines join with a token.
  returned: success
  type: list
  elements: str
  sample: []
anonymous_bindings:
  description: Bindings that grant rights to anonymous users, except reading version and health.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    Form,
    kubectl_spec,
    run_form,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import run_info  # noqa: F401

SPEC = kubectl_spec().merged(ArgumentSpec(options={"deprecated_apis": {"type": "bool", "default": False}}))
FORM = Form(spec=SPEC, run=installed("kubeadm.cluster_info:run_info"))


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
