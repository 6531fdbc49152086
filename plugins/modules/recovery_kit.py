#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_kit
short_description: Keep a recovery kit of a site, and bring a site back from one
version_added: 0.1.0
description:
  - With O(state=present) writes one encrypted file with all that a lost site needs, which are its master secret and
    what follows from it, the keys of join CA and policy, C(cluster.yml), the identities and the profiles.
  - The file is written again only where it would hold something else or be closed otherwise. A mark in C(.secrets/) of
    the site, which tells nothing without the master secret, says so; without it the file is written.
  - With O(state=restored) writes what the site lacks, its secrets encrypted by Ansible Vault. A file that is there
    stays as it is, and is named in RV(kept) where it differs.
  - Works on the machine that runs the playbook, whatever the host of the task is; no secret is ever returned.
  - O(passphrase_file) is what closes the kit with O(state=present), and what opens it with O(state=restored).
  - Recipients need the Python package C(pyrage), a token C(python-pkcs11).
  - Fails with C(SITE_SECRETS_INCOMPLETE) where the site has no secrets to keep, with C(SITE_VAULT) without a vault
    password, and with C(KIT_KEY_WRONG) where nothing, or another kind of key, was given.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  path:
    description:
      - The file of the kit, mode 0600.
      - With O(state=present) nothing but a kit of this cluster is replaced (C(PLACE_TAKEN)).
      - With O(state=restored) fails with C(KIT_MALFORMED), C(FILE_VERSION_UNKNOWN) or C(KIT_DAMAGED) for a
        file that is no whole kit, and with C(KIT_OTHER_CLUSTER) for that of another cluster than the site's.
    type: path
    required: true
  state:
    description: Whether the kit follows the site or the site the kit.
    type: str
    choices: [present, restored]
    default: present
  policy_directory:
    description: Where the profiles lie; C(policy/) of the site unless set.
    type: path
  recipients:
    description:
      - Recipients of age, C(age1...), of which each opens the kit, also with the program C(age).
      - Fails with C(KIT_KEY_UNUSABLE) for anything else.
    type: list
    elements: str
  token_key:
    description:
      - File with the RSA public key (PEM) of a PKCS#11 token, as C(attested kit token-keys) prints it. The token itself
        is not needed to write a kit.
    type: path
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
  - attested.kubernetes.kit_keys
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Write a kit for two recipients
  attested.kubernetes.recovery_kit:
    site: "{{ inventory_dir }}"
    path: /srv/kits/prod.age
    recipients:
      - age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z
      - age1t7r9prsqc3w3x4auqq7y8zplrfsddmf8z97hct68gmhea2l34f9q63h2kp

- name: Write a kit with a passphrase
  attested.kubernetes.recovery_kit:
    site: "{{ inventory_dir }}"
    path: /srv/kits/prod.kit
    passphrase_file: /dev/fd/9

- name: Check whether the kit is current
  attested.kubernetes.recovery_kit:
    site: "{{ inventory_dir }}"
    path: /srv/kits/prod.kit
    passphrase_file: /dev/fd/9
  check_mode: true

- name: Restore a lost site
  attested.kubernetes.recovery_kit:
    site: "{{ inventory_dir }}"
    path: /media/safe/prod.age
    identity_file: /media/stick/identity.txt
    state: restored
"""

RETURN = r"""
path:
  description: The file of the kit.
  returned: success
  type: str
  sample: /srv/kits/prod.age
restored:
  description: The files that were written into the site, or would be; those in C(.secrets/) by their name alone.
  returned: success
  type: list
  elements: str
  sample: [master-secret.json, join-ca-key.pem, policy-key.pem, host_vars/w-1/identity.yml, cluster.yml]
kept:
  description: The files of the site that differ from those of the kit and were left alone.
  returned: success
  type: list
  elements: str
  sample: [hosts.yml]
cluster_id:
  description: The public id of the cluster, 64 hexadecimal digits.
  returned: when the secrets exist
  type: str
  sample: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
policy_generation:
  description: Generation of the policy that the kit holds.
  returned: when the secrets exist
  type: int
  sample: 3
"""
