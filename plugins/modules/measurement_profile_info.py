#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measurement_profile_info
short_description: Read the active measurement profiles of a site
version_added: 0.2.0
description:
  - Reads and strictly parses the profiles that O(profiles) names, on the machine that runs the playbook.
  - Fails with C(POLICY_EMPTY), C(PROFILE_UNKNOWN) or C(MANIFEST_INVALID).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
options:
  profiles:
    description: Names of the active profiles.
    type: list
    elements: str
    required: true
  next_boots:
    description:
      - What machines would boot next, as RV(attested.kubernetes.next_boot_info#module:next_boots) tells it.
      - Each that no active profile would accept gives a warning.
    type: list
    elements: dict
    default: []
  next_boot:
    description:
      - What a machine boots next, as RV(attested.kubernetes.next_boot_info#module:next_boot) tells it, to be held
        against the profiles.
    type: dict
  image:
    description: A unified kernel image on the machine that runs the playbook, to be held against the profiles.
    type: path
  shown:
    description:
      - With O(next_boot) or O(image), what M(attested.kubernetes.attestation_verification) returned of the machine.
        Firmware and keys have to be those of the profile, and the profile has to count for the machine.
    type: dict
  learned:
    description: A manifest that was learned from a machine, to be compared with the profiles and named for an approval.
    type: str
"""

EXAMPLES = r"""
- name: Read the active profiles
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
  register: active

- name: Check a profile before its activation
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: [r650-debian13-next]

- name: Warn about a next boot that no profile accepts
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    next_boots: "{{ found.next_boots }}"

- name: Compare an image with the active profiles before a machine boots it
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    image: boot-images/fleet-1.efi

- name: Find out whether a machine may be rebooted
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    next_boot: "{{ found.next_boot }}"
    shown: "{{ verified }}"

- name: Apply the profiles
  attested.kubernetes.cluster_objects:
    manifests: ["{{ active.manifests }}"]
"""

RETURN = r"""
profiles:
  description:
    - The profiles; each register with its allowed values and their labels.
    - The posture is what the registers hold; a profile that says more is warned of.
  returned: success
  type: list
  elements: dict
  sample:
    - name: r650-debian13
      posture: boot
      registers: {"7": [{"sha256": "9f2c", "label": "w-1"}]}
      assertions: {"secureBoot": true}
      expires: ""
      retired: false
      roles: []
      machines: []
differences:
  description: In which registers the profiles differ, and by which events.
  returned: success
  type: list
  elements: str
  sample: ["PCR 4: w-1 has 9f2c"]
judged:
  description:
    - With O(next_boot) or O(image), whether an active profile would accept the machine after it.
    - V(unknown) means that it cannot be computed, so that only the boot itself shows it.
  returned: success
  type: dict
  sample: {"verdict": "allowed", "profile": "fleet-2", "why": ""}
learned:
  description:
    - With O(learned), the digest of all values and assertions, the same for each machine that shows the same, and
      how they differ from the nearest profile, event by event.
  returned: success
  type: dict
  sample: {"digest": "9f2c1d5e", "differences": ["PCR 4: w-1 has 9f2c"]}
manifests:
  description: The profiles as one YAML stream, as they are applied to the cluster.
  returned: success
  type: str
  sample: "kind: MeasurementProfile"
"""
