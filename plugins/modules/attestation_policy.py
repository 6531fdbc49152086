#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_policy
short_description: Sign the policy that a site means
version_added: 0.1.0
description:
  - Plans the next C(AttestationPolicy) from the site's active profiles, its control planes, its exceptions and every
    revocation that the site or any control plane knows, and signs it with the site's policy key. Works on the machine
    that runs the playbook; the key is opened in memory only.
  - The same content keeps its generation. Another one gets a generation higher than the site, the API and every record
    know; the site's C(cluster.yml) remembers it.
  - Says which joined nodes would fail the policy now, by the same decision as at admission, and fails with
    C(POLICY_WOULD_REFUSE) unless O(confirm_refusals) is set. In check mode it only says so.
  - A record holds register values and no event log. Where a profile asserts more than values, or asks for a register
    that was not judged last, the node is asked over its verification service. A node that does not answer is neither
    good nor bad, it is RV(unknown), and the module fails with C(POLICY_OUTLOOK_UNKNOWN) unless O(confirm_refusals) is
    set. If the policy removes no profile and no exception, no node is asked.
  - Fails with C(SITE_POLICY_EXCEPTION), C(PROFILE_UNKNOWN), C(POLICY_EMPTY), C(MANIFEST_INVALID) or C(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  profiles:
    description: Names of the active profiles.
    type: list
    elements: str
    required: true
  exceptions:
    description: Profiles that count for a few nodes until they end, for at most 14 days.
    type: list
    elements: dict
    default: []
    suboptions:
      profile:
        description: Name of a profile in O(policy_directory).
        type: str
        required: true
      nodes:
        description: Nodes that it counts for.
        type: list
        elements: str
        required: true
      until:
        description: Its end, for example V(2026-11-21T12:00:00Z).
        type: str
        required: true
      why:
        description: The reason, in one line.
        type: str
        required: true
  records:
    description: What M(attested.kubernetes.policy_record) said on each control plane.
    type: list
    elements: dict
    default: []
  confirm_refusals:
    description: Whether a policy that joined nodes would fail, or of which that is not known, is meant.
    type: bool
    default: false
  reinstate:
    description:
      - Nodes of which a revocation is taken back that was a mistake, whoever said it. Their C(attested_admission) in
        the site says something else by now, or the module fails with C(SITE_INVENTORY).
      - From then on the signed policy lists their keys as reinstated, and the machines are RV(returning). Who revokes
        one again takes it out of that list.
    type: list
    elements: str
    default: []
  endorsement_authorities:
    description: Files with authorities that endorsement certificates must chain to, where nodes are asked.
    type: list
    elements: path
    default: []
  port:
    description: Port of the nodes' verification services.
    type: int
    default: 9091
  wait_seconds:
    description: How long a node that does not answer is asked again.
    type: int
    default: 20
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Sign the site's policy
  attested.kubernetes.attestation_policy:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    records: "{{ records }}"
  register: next_policy

- name: Accept the old firmware of one node until noon
  attested.kubernetes.attestation_policy:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13]
    exceptions:
      - profile: r650-debian13-old
        nodes: [w-1]
        until: "2026-11-21T12:00:00Z"
        why: the vendor took the firmware back
    records: "{{ records }}"

- name: Revert a mistaken revocation
  attested.kubernetes.attestation_policy:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    records: "{{ records }}"
    reinstate: [w-1]

- name: Show which nodes a new profile would refuse
  attested.kubernetes.attestation_policy:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13-next]
    records: "{{ records }}"
  check_mode: true
"""

RETURN = r"""
generation:
  description: The generation of the policy.
  returned: success
  type: int
  sample: 7
policy:
  description: The signed manifest.
  returned: success
  type: str
  sample: "kind: AttestationPolicy"
manifests:
  description: Profiles, identities and policy as one YAML stream, as they are applied to the cluster.
  returned: success
  type: str
  sample: "kind: MeasurementProfile"
returning:
  description: Identities that the API still revokes, as one YAML stream; it takes them once the policy is there.
  returned: success
  type: str
  sample: ""
failing:
  description: What each node that would fail now was attested as, and what deviates.
  returned: success
  type: list
  elements: str
  sample: ["w-1 would fail: it was attested as r650-debian12 last (nearest r650-debian13: PCR 7)"]
unknown:
  description: Nodes for which it is not known whether they would fail, and why.
  returned: success
  type: list
  elements: str
  sample: ["w-2: not known whether it would fail, r650-debian13 asks for what an event log proves, and none is at hand"]
postures:
  description:
    - How far the evidence of each profile reaches, which is never more than its registers hold.
    - A profile that says more, or asserts what none of its registers proves, is warned of.
  returned: success
  type: list
  elements: str
  sample: ["profile r650-debian13: posture boot"]
"""
