#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measurement_profile
short_description: Write, merge, compute or retire a measurement profile of a site
version_added: 0.2.0
description:
  - Writes C(policy/<name>.yml) on the machine that runs the playbook, after strictly parsing every manifest.
  - The profile is one manifest, several manifests that are merged, or computed from a unified kernel image before its
    first boot.
  - The module fails with C(PROFILE_EXISTS) if a different profile of the same name exists, unless O(replace) is set.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
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
options:
  state:
    description:
      - V(present) writes the profile. Several profiles may be active at once.
      - V(retired) marks the profile O(name) as retired. It then accepts no machine, and its name stays known.
      - V(absent) removes the profile.
    type: str
    choices: [absent, present, retired]
    default: present
  name:
    description: Name of the profile. Required with O(manifests), O(image), V(retired) and V(absent).
    type: str
  manifest:
    description: Manifest of the profile as YAML.
    type: str
  manifests:
    description:
      - Manifests of several reference machines, merged into one profile that accepts each of them.
      - The values are merged for each register separately. The module fails with C(PROFILES_UNLIKE) if the manifests
        have different registers.
    type: list
    elements: str
  image:
    description:
      - Path of a unified kernel image on the machine that runs the playbook. Registers 4, 9 and 11 are computed from
        it.
      - The module fails with C(IMAGE_MALFORMED) or C(FILE_UNUSABLE). It fails with C(PREDICTION_INCOMPLETE) for a
        register whose value is not known before a boot.
    type: path
  base:
    description:
      - With O(image), name of the profile of the site whose other registers, assertions and events are kept.
      - If O(base) is for machines that boot GRUB, or a kernel alone, without Secure Boot, registers 0 and 7 are
        computed as they are before the firmware starts a program.
    type: str
  command_line:
    description: With O(image), the command line that the kernel gets, if it differs from that of the image.
    type: str
  secure_boot:
    description: With O(image), whether Secure Boot is on. If unset, the assertion of O(base) is used.
    type: bool
  phases:
    description: With O(image), the phases that systemd extends until a node joins. If unset, C(sysinit) and C(ready).
    type: list
    elements: str
  label:
    description: Description of the values, for example a release. If unset with O(image), it is the image's file name.
    type: str
  expires:
    description: Time from which the profile accepts no machine, for example V(2027-01-31T12:00:00Z).
    type: str
  replace:
    description: If true, replace another profile of the same name.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Write a learned profile
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    manifest: "{{ found.profile_manifest }}"

- name: Show how a manifest differs from the site's profile
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    manifest: "{{ found.profile_manifest }}"
    replace: true
  check_mode: true
  diff: true

- name: Merge the profiles of two reference machines
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    name: r650-debian13
    manifests: "{{ ['w-1', 'w-2'] | map('extract', hostvars, ['found', 'profile_manifest']) | list }}"

- name: Write the profile of an image before a machine boots it
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    name: r650-debian13-7
    base: r650-debian13
    image: /srv/images/debian13.7.efi
    label: "13.7"

- name: Retire an old profile
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    name: r650-debian13
    state: retired
"""

RETURN = r"""
path:
  description: Path of the profile manifest.
  returned: success
  type: str
  sample: /srv/sites/prod/policy/r650-debian13.yml
name:
  description: Name of the profile.
  returned: success
  type: str
  sample: r650-debian13
differences:
  description: With O(manifests), the registers in which the machines differ, and the events that cause the difference.
  returned: success
  type: list
  elements: str
  sample: ["PCR 4: w-1 has 9f2c"]
"""
