#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measurement_profile
short_description: Write, merge, compute or retire a measurement profile of the site
version_added: 0.1.0
description:
  - Writes C(policy/<name>.yml) on the machine that runs the playbook, after parsing every manifest strictly.
  - The profile is one manifest, several merged into one, or computed from a unified kernel image before its first boot.
  - A profile of the same name that differs is left alone (C(PROFILE_EXISTS)) unless O(replace) is set.
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
      - V(retired) marks the profile O(name): it accepts no machine, and its name stays known.
      - V(absent) removes it.
    type: str
    choices: [absent, present, retired]
    default: present
  name:
    description: Name of the profile; needed with O(manifests), O(image), V(retired) and V(absent).
    type: str
  manifest:
    description: The manifest as YAML.
    type: str
  manifests:
    description:
      - Manifests of several reference machines, merged into one profile that accepts each of them.
      - Values mix, register by register. Fails with C(PROFILES_UNLIKE) where they hold different registers.
    type: list
    elements: str
  image:
    description:
      - A unified kernel image on the machine that runs the playbook, from which registers 4, 9 and 11 are computed.
      - Fails with C(IMAGE_MALFORMED), C(FILE_UNUSABLE) or, for a register that cannot be known without a boot,
        C(PREDICTION_INCOMPLETE).
    type: path
  base:
    description:
      - With O(image), the profile of the site whose other registers, assertions and events are kept.
      - The profile of machines that boot GRUB, or a kernel alone, without Secure Boot gives registers 0 and 7 as
        they are before firmware starts a program.
    type: str
  command_line:
    description: With O(image), the command line that the kernel gets, if it is not the image's own.
    type: str
  secure_boot:
    description: With O(image), whether Secure Boot is on; what O(base) asserts if absent.
    type: bool
  phases:
    description: With O(image), the phases that systemd extends until a node joins; C(sysinit), C(ready) if absent.
    type: list
    elements: str
  label:
    description: What the values are, for example a release; the image's file name if absent with O(image).
    type: str
  expires:
    description: From then on the profile accepts no machine, for example V(2027-01-31T12:00:00Z).
    type: str
  replace:
    description: Replace another profile of the same name.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Write a learned profile
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    manifest: "{{ found.profile_manifest }}"

- name: Show how it differs from the site's profile
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
  description: The file.
  returned: success
  type: str
  sample: /srv/sites/prod/policy/r650-debian13.yml
name:
  description: Name of the profile.
  returned: success
  type: str
  sample: r650-debian13
differences:
  description: With O(manifests), in which registers the machines differ, and by which events.
  returned: success
  type: list
  elements: str
  sample: ["PCR 4: w-1 has 9f2c"]
"""
