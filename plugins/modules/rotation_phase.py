#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rotation_phase
short_description: Run the first phase of a rotation on one control plane
version_added: 0.1.0
description:
  - Does on this control plane what the first phase of O(plan) changes there. Each phase changes nothing where it is
    done, except C(make) for V(encryption_key), which makes one more key. An interrupted task is repeated by the next
    one.
  - V(authorities). C(make) stages a successor of each authority, C(share) stages those in O(sealed); nothing uses
    them. C(trust) and C(retire) write the trust bundles of the plan, and restart etcd, API server, controller
    manager, scheduler, kubelet and key service with them, one after the other. C(issue) has the successors sign as
    well, and has C(kubeadm) issue every certificate of this control plane. C(forget) deletes the staged copies. The
    join Lease must be held by C(rotate-authorities) or free, etcd is stopped only where every member is healthy
    (V(ETCD_MEMBER_UNHEALTHY)), and the first component that does not come up ends the task
    (V(CONTROL_PLANE_COMPONENT_UNHEALTHY), V(CONTROL_PLANE_RENEWAL_UNDONE)).
  - V(encryption_key). C(make) adds a key at the end of C(/etc/kubernetes/attested/encryption.yaml). C(share), C(lead)
    and C(retire) write the file with the keys of the plan, and wait until the API server uses that very file, which
    takes up to a minute and no restart. An API server that was made before Secrets were encrypted gets the argument
    first, which restarts it; control planes that join later get it from the ConfigMap C(kubeadm-config).
  - V(master_secret). Opens O(sealed), keeps the versions under the TPM, sealed to the verified registers and to what
    the register of the node lock held before this boot's lock, and restarts the key service unless it runs with them.
    M(attested.kubernetes.rotation_recipient) calls this; there is no other use.
  - Fails further with V(OPTION_INVALID) for a plan of another kind or one that does not change this node,
    V(AUTHORITY_UNUSABLE), V(ANSWER_UNKNOWN), V(SEAL_UNOPENABLE), V(CONTROL_PLANE_JOIN_BUSY),
    V(CONTROL_PLANE_RENEWAL_FAILED), V(KUBELET_NOT_RUNNING), V(NODELOCK_NOT_HELD), V(ENCRYPTION_KEY_MISSING),
    V(ENCRYPTION_NOT_TAKEN), V(CONTROL_PLANE_MANIFEST_MALFORMED), V(ENCRYPTION_MALFORMED), V(ENCRYPTION_FOREIGN),
    V(KUBECTL_FAILED), V(CLUSTER_ID_MISMATCH), V(KEYS_ABSENT) or V(KEY_SERVICE_UNREACHABLE).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  plan:
    description: The result of M(attested.kubernetes.rotation). Required unless O(kind=master_secret).
    type: dict
  handle:
    description: Which answer of this machine O(sealed) was sealed to, of M(attested.kubernetes.rotation_recipient).
    type: str
  sealed:
    description: The box with the keys that are sent to this machine, base64. Only this machine, in this boot, can
      open it.
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
    details: An encryption key in O(sealed) cannot be named without opening the box, which uses the box up.
  diff_mode:
    support: partial
    details: Only V(encryption_key) shows its keys.
  idempotent:
    support: partial
    details: The phase C(make) of V(encryption_key) makes one more key in every run.
"""

EXAMPLES = r"""
- name: Make a successor of each authority
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
  description: Name of the encryption key that was made.
  returned: after C(make) of encryption_key
  type: str
  sample: key-2-9f2c1d5e9f2c1d5e
names:
  description: The versions of the master secret that this control plane has now, the current one first.
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
