#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_kit
short_description: Write a recovery kit of a site, and restore a site from a kit
version_added: 0.2.0
description:
  - With O(state=present) the module writes one encrypted file with everything that a lost site needs. These are the
    master secret and what is derived from it, the keys of the join CA and the policy, C(cluster.yml), the identities
    and the profiles.
  - The file is written again only if its content or its keys would change. A marker in C(.secrets/) of the site, which
    reveals nothing without the master secret, records the last state. Without the marker the file is written.
  - With O(state=restored) the module writes the files that the site lacks, its secrets encrypted by Ansible Vault. An
    existing file is not changed. It is listed in RV(kept) if it differs.
  - Runs on the machine that runs the playbook, regardless of the host of the task. The module never returns a secret.
  - O(passphrase_file) encrypts the kit with O(state=present), and decrypts it with O(state=restored).
  - Recipients need the Python package C(pyrage), a token needs C(python-pkcs11).
  - The module fails with C(SITE_SECRETS_INCOMPLETE) if the site has no secrets, with C(SITE_VAULT) without a vault
    password, and with C(KIT_KEY_WRONG) without a key or with another kind of key.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  path:
    description:
      - Path of the kit, which has mode 0600.
      - With O(state=present) the module replaces only a kit of this cluster, and fails with C(PLACE_TAKEN) for any
        other file.
      - With O(state=restored) the module fails with C(KIT_MALFORMED), C(FILE_VERSION_UNKNOWN) or C(KIT_DAMAGED) for a
        file that is not a complete kit. It fails with C(KIT_OTHER_CLUSTER) for a kit of another cluster than that of
        the site.
    type: path
    required: true
  state:
    description: V(present) writes the kit from the site, V(restored) writes the site from the kit.
    type: str
    choices: [present, restored]
    default: present
  policy_directory:
    description: Directory of the profiles. If unset, C(policy/) of the site.
    type: path
  recipients:
    description:
      - Recipients of age, C(age1...). Each of them can decrypt the kit, also with the program C(age).
      - The module fails with C(KIT_KEY_UNUSABLE) for any other value.
    type: list
    elements: str
  token_key:
    description:
      - Path of a file with the RSA public key (PEM) of a PKCS#11 token, as C(attested kit token-keys) prints it. The
        token itself is not needed to write a kit.
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
  description: Path of the kit.
  returned: success
  type: str
  sample: /srv/kits/prod.age
restored:
  description:
    - The files that were written into the site, or in check mode would be written. Files in C(.secrets/) are listed by
      name only.
  returned: success
  type: list
  elements: str
  sample: [master-secret.json, join-ca-key.pem, policy-key.pem, host_vars/w-1/identity.yml, cluster.yml]
kept:
  description: The files of the site that differ from those of the kit and were not changed.
  returned: success
  type: list
  elements: str
  sample: [hosts.yml]
cluster_id:
  description: The public id of the cluster, 64 hexadecimal digits.
  returned: if the secrets exist
  type: str
  sample: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
policy_generation:
  description: Generation of the policy that the kit holds.
  returned: if the secrets exist
  type: int
  sample: 3
"""
