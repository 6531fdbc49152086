#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measurement_profile
short_description: Write a measurement profile into the site
version_added: 0.1.0
description:
  - Writes C(policy/<name>.yml) on the machine that runs the playbook, after parsing the manifest strictly.
  - A profile of the same name that differs is left alone (C(PROFILE_EXISTS)) unless O(replace) is set.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  site:
    description: Directory of the site, the one with C(hosts.yml).
    type: path
    required: true
  policy_directory:
    description: Directory of the profile manifests; C(policy/) of the site if absent.
    type: path
  manifest:
    description: The manifest as YAML.
    type: str
    required: true
  replace:
    description: Replace another profile of the same name.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Keep the profile that was learned
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    manifest: "{{ found.profile_manifest }}"

- name: See how it differs from the one in the site
  attested.kubernetes.measurement_profile:
    site: "{{ inventory_dir }}"
    manifest: "{{ found.profile_manifest }}"
    replace: true
  check_mode: true
  diff: true

- name: Take a profile that came with an image
  attested.kubernetes.measurement_profile:
    site: /srv/sites/prod
    manifest: "{{ image_profile_text }}"
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
"""
