#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret
short_description: Create the secrets of a site, and split its master secret
version_added: 0.2.0
description:
  - Creates the master secret, the key of the join CA and the policy key on the admin's machine. Either all or none of
    them are created, encrypted by Ansible Vault in C(.secrets/) of the site. The master secret can be read from a file
    or rebuilt from shares.
  - Public values (cluster id, measurement salt, join CA certificate, public policy key) are written to C(cluster.yml),
    which is committed.
  - With O(shares_to) the master secret is also written as shares in words. A threshold of these shares rebuilds it. The
    folder must be empty or contain such shares of this secret (C(PLACE_TAKEN)). It must be outside every site and
    repository (C(SHARES_EXPOSED)). This needs the Python package C(shamir-mnemonic).
  - Runs on the machine that runs the playbook, regardless of the host of the task. The module never returns a secret.
  - The module fails with C(SITE_SECRETS_INCOMPLETE) if only a part of the set exists, and with C(SITE_VAULT) without a
    vault password.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  cluster_name:
    description: Name of the cluster, which appears in the subject of the join CA.
    type: str
    required: true
  import_from:
    description:
      - Path of a file with a master secret in clear text, which is used instead of a new one. The file has
        Constellation's form (C(constellation-mastersecret.json)) or was written by C(attested secret combine).
      - If the site has all its secrets, or all but the master secret, the file must contain the secret of the site's
        cluster (C(CLUSTER_ID_MISMATCH)). A missing master secret is restored from it.
      - The module fails with C(SITE_SECRET_MALFORMED) if the file contains something else.
    type: path
  shares_from:
    description:
      - Paths of files with shares, or of folders with such files, to rebuild the master secret from. Otherwise the same
        as O(import_from).
      - The module fails with C(SHARES_TOO_FEW), C(SHARES_UNLIKE), C(SHARE_WORDS_WRONG) or similar codes.
    type: list
    elements: path
  measurement_salt:
    description:
      - Measurement salt of the cluster that the master secret comes from, 64 hexadecimal digits. The salt is not
        secret.
      - The cluster id is derived from the master secret and the salt. Without this option, and without a salt on the
        shares, a new salt is created.
      - The module fails with C(SITE_SECRET_MALFORMED) for another value.
    type: str
  shares_to:
    description: Folder for the shares, written as C(share-1.txt) and so on with mode 0600.
    type: path
  split:
    description: How many shares rebuild the secret and how many are created, such as V(3/5). At least 2, at most 16.
    type: str
  secure_boot_key:
    description:
      - Make a key that signs boot images for Secure Boot too (RSA of 2048 bits), unless the site has one. The private
        key is C(.secrets/secure-boot-key.pem), its certificate C(secure-boot.pem) of the site, which is committed.
      - Fails with C(SITE_SECRETS_INCOMPLETE) where one of both files is gone. The key is in no recovery kit.
    type: bool
    default: false
  passphrase_file:
    description:
      - Path of a file with the passphrase of the shares, 12 to 256 printable ASCII characters. It may be C(/dev/fd/N).
      - With O(shares_from) the passphrase of these shares, with O(shares_to) the passphrase of the new shares. If
        unset, there is no passphrase.
    type: path
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.site
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Create the secrets of a site
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod

- name: Create a key for Secure Boot too
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod
    secure_boot_key: true

- name: Split the master secret into five shares with a threshold of three
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod
    shares_to: /run/user/1000/shares
    split: 3/5

- name: Restore a lost master secret
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod
    shares_from: [/run/user/1000/typed]

- name: Show which files would be created
  attested.kubernetes.master_secret:
    site: "{{ inventory_dir }}"
    cluster_name: prod
  check_mode: true
  diff: true

- name: Show the values that every node pins
  attested.kubernetes.master_secret:
    site: /srv/sites/prod
    cluster_name: prod
  register: made
- ansible.builtin.debug:
    msg: "join CA {{ made.join_ca_sha256 }}"
"""

RETURN = r"""
created:
  description: The files that were created, relative to the site. Empty if all files existed.
  returned: success
  type: list
  elements: str
  sample: [.secrets/master-secret.json, .secrets/join-ca-key.pem, .secrets/policy-key.pem, cluster.yml]
split:
  description: Whether shares were written, or in check mode would be written.
  returned: success
  type: bool
  sample: false
cluster_id:
  description: The public id of the cluster, 64 hexadecimal digits.
  returned: if the secrets exist
  type: str
  sample: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
join_ca_sha256:
  description: SHA-256 of the join CA's certificate (DER).
  returned: if the secrets exist
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
"""
