#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_phase
short_description: Run the first phase of a rotation on one control plane
version_added: 0.2.0
description:
  - Runs the first phase of O(plan) on this control plane. A completed phase changes nothing, except C(make) for
    V(encryption_key), which creates one more key. The next run repeats an interrupted phase.
  - V(authorities) - C(make) stages a successor of each authority, C(share) stages those in O(sealed). No component uses
    staged successors. C(trust) and C(retire) write the trust bundles of the plan, and restart etcd, the API server, the
    controller manager, the scheduler, the kubelet and the key service with them, one after the other. C(issue) also
    makes the successors sign, and runs C(kubeadm) to issue every certificate of this control plane. C(forget) deletes
    the staged copies.
  - For V(authorities) the join Lease must be held by C(rotate-authorities) or be free. Etcd is stopped only if every
    member is healthy (V(ETCD_MEMBER_UNHEALTHY)). The module stops at the first component that does not become healthy
    (V(CONTROL_PLANE_COMPONENT_UNHEALTHY), V(CONTROL_PLANE_RENEWAL_UNDONE)).
  - V(encryption_key) - C(make) adds a key at the end of C(/etc/kubernetes/attested/encryption.yaml). C(share), C(lead)
    and C(retire) write the file with the keys of the plan, and wait until the API server uses it. This takes up to a
    minute and no restart. An API server without the argument for encryption gets it first, and is restarted. Control
    planes that join later get the argument from the ConfigMap C(kubeadm-config).
  - V(master_secret) - The module opens O(sealed) and protects the versions with the TPM. They are sealed to the
    verified registers and to the value of the lock register before the lock of this boot. The key service is restarted
    unless it runs with these versions. Only M(attested.kubernetes.rotation_recipient) calls the module for this.
  - The module fails with V(OPTION_INVALID) for a plan of another kind or a plan that does not change this node. It also
    fails with V(AUTHORITY_UNUSABLE), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE), V(CONTROL_PLANE_JOIN_BUSY),
    V(CONTROL_PLANE_RENEWAL_FAILED), V(KUBELET_NOT_RUNNING), V(NODELOCK_NOT_HELD), V(ENCRYPTION_KEY_MISSING),
    V(ENCRYPTION_NOT_TAKEN), V(CONTROL_PLANE_MANIFEST_MALFORMED), V(ENCRYPTION_MALFORMED), V(ENCRYPTION_FOREIGN),
    V(KUBECTL_FAILED), V(CLUSTER_ID_MISMATCH), V(KEYS_ABSENT) or V(KEY_SERVICE_UNREACHABLE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  plan:
    description: Result of M(attested.kubernetes.rotation). Required unless O(kind=master_secret).
    type: dict
  handle:
    description: Handle of the answer that O(sealed) was sealed to, from M(attested.kubernetes.rotation_recipient).
    type: str
  sealed:
    description: Box with the keys that are sent to this machine, base64. Only this machine, in this boot, can open it.
    type: str
extends_documentation_fragment:
  - attested.kubernetes.rotation
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
  - attested.kubernetes.node_config
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: partial
    details: Check mode does not name an encryption key in O(sealed), because a box can be opened only once.
  diff_mode:
    support: partial
    details: Only V(encryption_key) shows the names of its keys.
  idempotent:
    support: partial
    details: The phase C(make) of V(encryption_key) creates one more key in every run.
"""

EXAMPLES = r"""
- name: Create a successor of each authority
  attested.kubernetes.rotation_phase:
    kind: authorities
    plan: "{{ rotation }}"
  when: inventory_hostname in rotation.changes

- name: Install the encryption key of another control plane
  attested.kubernetes.rotation_phase:
    kind: encryption_key
    plan: "{{ rotation }}"
    handle: "{{ recipient.handle }}"
    sealed: "{{ hostvars[rotation.source].share.boxes[inventory_hostname] }}"

- name: Show what a phase would change
  attested.kubernetes.rotation_phase:
    kind: encryption_key
    plan: "{{ rotation }}"
  check_mode: true
  diff: true
"""

RETURN = r"""
made:
  description: Name of the encryption key that was created.
  returned: after C(make) of encryption_key
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
names:
  description: Versions of the master secret that this control plane has now, the current version first.
  returned: for master_secret, not in check mode
  type: list
  elements: str
  sample: [2-9f2c1d5e9f2c1d5e, 1-0a4f5e2a7c11d58f]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    node_config_spec,
    rotation_spec,
    run_module,
    tpm_timeout_spec,
)

SPEC = ArgumentSpec(
    options={
        "plan": {"type": "dict"},
        "handle": {"type": "str", "no_log": False},
        "sealed": {"type": "str", "no_log": False},
    },
    required_together=(("handle", "sealed"),),
    required_if=(
        ("kind", "authorities", ("plan",)),
        ("kind", "encryption_key", ("plan",)),
        ("kind", "master_secret", ("handle", "sealed")),
    ),
).merged(rotation_spec(), kubectl_spec(), node_config_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.rotation:run_phase"), libraries=("cryptography", "google.protobuf", "yaml"))


if __name__ == "__main__":
    main()
