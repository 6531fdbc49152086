#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_policy
short_description: Sign the attestation policy of a site
version_added: 0.2.0
description:
  - Plans the next C(AttestationPolicy) from the site's active profiles, control planes and exceptions, and from every
    revocation that the site or a control plane has recorded. It is signed with the site's policy key. The module runs
    on the machine that runs the playbook. The key is decrypted in memory only.
  - Unchanged content keeps its generation. Changed content gets a generation higher than that of the site, the API and
    every record. The generation is stored in C(cluster.yml) of the site.
  - Returns the joined nodes that would fail the policy now, with the same decision as at admission. The module fails
    with C(POLICY_WOULD_REFUSE) unless O(confirm_refusals) is set. In check mode it only returns them.
  - A record contains register values and no event log. If a profile asserts more than values, or requires a register
    that was not verified last, the node is asked for evidence over its verification service. A node that does not
    answer is listed in RV(unknown), and the module fails with C(POLICY_OUTLOOK_UNKNOWN) unless O(confirm_refusals) is
    set. If the policy removes no profile and no exception, no node is asked.
  - The module also fails with C(SITE_POLICY_EXCEPTION), C(PROFILE_UNKNOWN), C(POLICY_EMPTY), C(MANIFEST_INVALID) or
    C(SITE_VAULT).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  profiles:
    description: Names of the active profiles.
    type: list
    elements: str
    required: true
  exceptions:
    description: Profiles that are valid for a few nodes until a given time, for at most 14 days.
    type: list
    elements: dict
    default: []
    suboptions:
      profile:
        description: Name of a profile in O(policy_directory).
        type: str
        required: true
      nodes:
        description: Names of the nodes that the profile is valid for.
        type: list
        elements: str
        required: true
      until:
        description: Time at which the exception ends, for example V(2026-11-21T12:00:00Z).
        type: str
        required: true
      why:
        description: The reason, in one line.
        type: str
        required: true
  records:
    description: Results of M(attested.kubernetes.policy_record) on each control plane.
    type: list
    elements: dict
    default: []
  confirm_refusals:
    description:
      - If true, the policy is signed although joined nodes would fail it, or although the result for a node is not
        known.
    type: bool
    default: false
  reinstate:
    description:
      - Nodes whose mistaken revocation is withdrawn, regardless of where it was recorded. The module fails with
        C(SITE_INVENTORY) if C(attested_admission) of such a node in the site is still V(Revoked).
      - The signed policy lists the keys of these nodes as reinstated, and their identities are in RV(returning). A
        later revocation removes the key from that list.
    type: list
    elements: str
    default: []
  endorsement_authorities:
    description:
      - Files with CA certificates that endorsement certificates must chain to, if nodes are asked for evidence.
    type: list
    elements: path
    default: []
  port:
    description: Port of the nodes' verification services.
    type: int
    default: 9091
  wait_seconds:
    description: How long requests to a node that does not answer are retried, in seconds.
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
  description:
    - Profiles, policy, and the identities that O(records) do not have as they are in the site, as one YAML stream, as
      they are applied to the cluster.
  returned: success
  type: str
  sample: "kind: MeasurementProfile"
returning:
  description:
    - Identities of reinstated machines that are still revoked in the API, as one YAML stream. The API accepts them
      after the policy is applied.
  returned: success
  type: str
  sample: ""
failing:
  description: By node that would fail now, the profile of its last attestation and what deviates.
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
    - How far the evidence of each profile reaches. It never exceeds what the registers of the profile prove.
    - The module warns if a profile claims more, or asserts what none of its registers proves.
  returned: success
  type: list
  elements: str
  sample: ["profile r650-debian13: posture boot"]
"""
