#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: init
short_description: Make a cluster on a machine that has proven itself, over its init service
version_added: 0.2.0
description:
  - Asks the init service of the task's host for evidence, judges it by the site on the machine that runs the playbook,
    and only then sends the cluster's keys, sealed to the machine in the very state that was judged. It needs no ssh.
  - Whoever asks proves to be an admin of the cluster by a key under the site's join CA, which is made for this one
    request and lives in memory only.
  - The site's signed policy goes along with its profiles and identities, so that other machines can join without
    anybody having touched the machine over ssh. It is signed as M(attested.kubernetes.attestation_policy) does where no
    cluster is there yet, and C(cluster.yml) of the site says what was signed. The machine verifies it before it does
    anything, hands it to its key service and applies it; fails with C(POLICY_SIGNATURE), C(MANIFEST_INVALID) or
    C(POLICY_ROLLED_BACK), or with C(MESSAGE_TOO_LARGE) where it does not fit into a request.
  - What the machine does is printed while it happens, a line a task.
  - A broken connection stops nothing on the machine. The module connects again and follows the same init; so does
    another run of the task. A request with other options is refused with C(INIT_REQUEST_DIFFERS); one with
    another policy is the same request, and RV(policy_missing) says where the machine was at work with the one before.
  - A machine that replaced the founder of the cluster is refused with C(CLUSTER_FOUNDER_GONE).
  - At the end it writes C(.secrets/admin.kubeconfig) of the site, with the certificate that the machine gave and the
    admin's own key, which never left this machine. Fails with C(INIT_KUBECONFIG_HOLDS_KEY),
    C(INIT_KUBECONFIG_MALFORMED), C(INIT_CERTIFICATE_FOREIGN) or C(INIT_CERTIFICATE_UNUSABLE), and writes nothing, where
    the machine gave something else; with C(CLUSTER_ID_MISMATCH) where it speaks of another cluster.
  - Where that kubeconfig is there, by the admin's own key, for O(cluster_name), and a quarter of the life of its
    certificate is left, no machine is asked and nothing changes. A certificate that is due cannot be renewed this way,
    because a machine that is a node has no init service any more; the playbook C(attested.kubernetes.kubeconfig) does.
  - Fails with the reason of the check that refused, with that of the machine's own step, C(SITE_VAULT),
    C(SITE_SECRETS_INCOMPLETE), C(ROLE_NOT_REGISTERED), or C(PEER_UNREACHABLE) if no init service listens.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
attributes:
  check_mode:
    support: partial
    details:
      - Nobody is asked. It says whether the site, its secrets and its policy are usable and whether a kubeconfig is
        due, not whether the machine would be accepted.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  cluster_name:
    description: Name of the cluster, of the machine's request and in the kubeconfig.
    type: str
    required: true
  kubernetes_version:
    description: The version of Kubernetes; the machine's bundle must have it.
    type: str
    required: true
  service_subnet:
    description: Addresses of the cluster's Services.
    type: str
    default: 10.96.0.0/16
  extra_sans:
    description: More names and addresses for the API server's certificate, beside those that the machine has.
    type: list
    elements: str
    default: []
  server:
    description: Where the API server is reached, as C(host:port), in the kubeconfig.
    type: str
    required: true
  tls_server_name:
    description: The name that the API server's certificate must have, in the kubeconfig.
    type: str
    required: true
  exceptions:
    description: Profiles that count for a few nodes until they end, as in M(attested.kubernetes.attestation_policy).
    type: list
    elements: dict
    default: []
  send_policy:
    description: Whether to send the signed policy. If not, apply it afterwards with the playbook C(policy).
    type: bool
    default: true
  port:
    description: Port of the init service; it is asked at the host's C(ansible_host).
    type: int
    default: 9000
  wait_seconds:
    description:
      - How long a machine may be silent, from the first try or from the last new thing that it said, while it is asked
        again with growing pauses. The whole of it ends after an hour.
      - A single task of the machine may be silent for longer, as long as the connection lasts.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Initialize the cluster on the first control plane
  attested.kubernetes.init:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    cluster_name: "{{ attested_cluster_name }}"
    kubernetes_version: "{{ attested_kubernetes_version }}"
    server: "{{ attested_api_endpoint }}"
    tls_server_name: "{{ attested_api_endpoint | regex_replace(':[0-9]+$', '') }}"

- name: Wait ten minutes for a machine that is booting
  attested.kubernetes.init:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13]
    cluster_name: prod
    kubernetes_version: "1.36"
    server: api.prod.example:6443
    tls_server_name: api.prod.example
    wait_seconds: 600

- name: Initialize the cluster without sending the policy
  attested.kubernetes.init:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    cluster_name: prod
    kubernetes_version: "1.36"
    server: api.prod.example:6443
    tls_server_name: api.prod.example
    send_policy: false

- name: Check whether the site is ready
  attested.kubernetes.init:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    cluster_name: prod
    kubernetes_version: "1.36"
    extra_sans: [api.example.org]
    server: api.prod.example:6443
    tls_server_name: api.prod.example
  check_mode: true
"""

RETURN = r"""
cluster_id:
  description: The id of the cluster, 64 hexadecimal digits.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
path:
  description: The admin's kubeconfig.
  returned: success
  type: str
  sample: /srv/sites/prod/.secrets/admin.kubeconfig
profile:
  description: The profile that the machine matches.
  returned: when the machine was asked
  type: str
  sample: r650-debian13
posture:
  description: How far its evidence reaches.
  returned: when the machine was asked
  type: str
  sample: boot
ek_sha256:
  description: The machine's endorsement key.
  returned: when the machine was asked
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
policy_generation:
  description: The generation of the policy that came along and is in force, 0 where none did.
  returned: when the machine was asked
  type: int
  sample: 1
policy_missing:
  description: Whether the machine made its cluster without the policy that was sent, which is to be applied over ssh.
  returned: when the machine was asked
  type: bool
  sample: false
steps:
  description: The stages of the machine's work with their seconds.
  returned: when the machine was asked
  type: list
  elements: dict
  sample: [{"name": "Make the cluster", "seconds": 61.2, "changed": true}]
tasks:
  description: The same by task.
  returned: when the machine was asked
  type: list
  elements: dict
  sample: [{"stage": "Make the cluster", "task": "Control plane", "seconds": 58.1}]
stage:
  description: The stage in which the machine failed.
  returned: failure of a step of the machine
  type: str
  sample: Make the cluster
task:
  description: The task in which the machine failed.
  returned: failure of a step of the machine
  type: str
  sample: Control plane
log:
  description: The last lines of that task, without secrets.
  returned: failure of a step of the machine
  type: list
  elements: str
  sample: ["no space left on device"]
"""
