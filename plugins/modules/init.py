#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: init
short_description: Initialize a cluster on a verified machine over its init service
version_added: 0.2.0
description:
  - Requests evidence from the init service of the task's host, and verifies it against the site on the machine that
    runs the playbook. Then it sends the cluster's keys, sealed to the machine in the verified state. It needs no ssh.
  - The module authenticates as an admin of the cluster with a certificate of the site's join CA. Its key is created for
    this request and is in memory only.
  - The module also sends the site's signed policy with its profiles and identities, so that other machines can join
    before the machine is reached over ssh. It is signed as M(attested.kubernetes.attestation_policy) does without a
    cluster, and recorded in C(cluster.yml) of the site. The machine verifies the policy before it does anything else,
    sends it to its key service and applies it.
  - The module fails with C(POLICY_SIGNATURE), C(MANIFEST_INVALID) or C(POLICY_ROLLED_BACK) if the machine refuses the
    policy, and with C(MESSAGE_TOO_LARGE) if the policy is too large for a request.
  - The module prints one line for each task of the machine while the task runs.
  - A broken connection does not stop the machine. The module connects again and follows the same init, and so does
    another run of the task. A request with other options is refused with C(INIT_REQUEST_DIFFERS). A request with
    another policy is the same request, and RV(policy_missing) is true if the machine had started with the earlier
    policy.
  - A machine that replaces the founder of the cluster is refused with C(CLUSTER_FOUNDER_GONE).
  - At the end the module writes C(.secrets/admin.kubeconfig) of the site, with the certificate that the machine signed
    and the admin's own key, which never leaves the machine that runs the playbook. If the machine returned something
    else, nothing is written. The module then fails with C(INIT_KUBECONFIG_HOLDS_KEY), C(INIT_KUBECONFIG_MALFORMED),
    C(INIT_CERTIFICATE_FOREIGN) or C(INIT_CERTIFICATE_UNUSABLE), or with C(CLUSTER_ID_MISMATCH) if the answer is about
    another cluster.
  - If the kubeconfig exists with the admin's own key for O(cluster_name), and a quarter of the lifetime of its
    certificate is left, the module contacts no machine and changes nothing. This module cannot renew a certificate,
    because a node has no init service any more. Use the playbook C(attested.kubernetes.kubeconfig).
  - The module fails with the reason of the failed check or of the failed step of the machine. It also fails with
    C(SITE_VAULT), C(SITE_SECRETS_INCOMPLETE) or C(ROLE_NOT_REGISTERED), or with C(PEER_UNREACHABLE) if no init service
    listens.
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
      - The machine is not contacted. Check mode reports whether the site, its secrets and its policy are usable and
        whether a kubeconfig is due. It does not report whether the machine would be accepted.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  cluster_name:
    description: Name of the cluster, as in the machine's request and in the kubeconfig.
    type: str
    required: true
  kubernetes_version:
    description: Version of Kubernetes. The bundle of the machine must have this version.
    type: str
    required: true
  service_subnet:
    description: Network of the cluster's Services, in CIDR notation.
    type: str
    default: 10.96.0.0/16
  extra_sans:
    description: Names and addresses for the API server's certificate, in addition to those of the machine.
    type: list
    elements: str
    default: []
  server:
    description: Address of the API server in the kubeconfig, as C(host:port).
    type: str
    required: true
  tls_server_name:
    description: The name that the API server's certificate must have, in the kubeconfig.
    type: str
    required: true
  exceptions:
    description:
      - Profiles that are valid for a few nodes until a given time, as in M(attested.kubernetes.attestation_policy).
    type: list
    elements: dict
    default: []
  send_policy:
    description: If true, the signed policy is sent. Otherwise apply it afterwards with the playbook C(policy).
    type: bool
    default: true
  port:
    description: Port of the init service at the host's C(ansible_host).
    type: int
    default: 9000
  wait_seconds:
    description:
      - How long the machine may send nothing new, in seconds, from the first attempt or from its last new message.
        Requests are repeated with growing pauses meanwhile. The module stops waiting after an hour.
      - A single task of the machine may take longer, as long as the connection lasts.
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
  description: Path of the admin's kubeconfig.
  returned: success
  type: str
  sample: /srv/sites/prod/.secrets/admin.kubeconfig
profile:
  description: The profile that the machine matches.
  returned: if the machine was contacted
  type: str
  sample: r650-debian13
posture:
  description: How far the evidence of the profile reaches.
  returned: if the machine was contacted
  type: str
  sample: boot
ek_sha256:
  description: SHA-256 of the machine's endorsement key.
  returned: if the machine was contacted
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
policy_generation:
  description: Generation of the policy that was sent and is in force, 0 if none was sent.
  returned: if the machine was contacted
  type: int
  sample: 1
policy_missing:
  description:
    - Whether the machine initialized its cluster without the policy that was sent. Apply the policy over ssh then.
  returned: if the machine was contacted
  type: bool
  sample: false
steps:
  description: Stages of the machine's work with their seconds.
  returned: if the machine was contacted
  type: list
  elements: dict
  sample: [{"name": "Make the cluster", "seconds": 61.2, "changed": true}]
tasks:
  description: Tasks of these stages with their seconds.
  returned: if the machine was contacted
  type: list
  elements: dict
  sample: [{"stage": "Make the cluster", "task": "Control plane", "seconds": 58.1}]
stage:
  description: The stage in which the machine failed.
  returned: if a step of the machine failed
  type: str
  sample: Make the cluster
task:
  description: The task in which the machine failed.
  returned: if a step of the machine failed
  type: str
  sample: Control plane
log:
  description: Last lines of the failed task, without secrets.
  returned: if a step of the machine failed
  type: list
  elements: str
  sample: ["no space left on device"]
"""
