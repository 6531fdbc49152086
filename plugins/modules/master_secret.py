#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: master_secret
short_description: Make the secrets of a site, and split its master secret
version_added: 0.1.0
description:
  - Makes the master secret, the key of the join CA and the policy key on the admin's machine, all or none,
    encrypted by Ansible Vault in C(.secrets/) of the site. The master secret can come from a file or from shares.
  - What may be public (cluster id, measurement salt, join CA certificate, public policy key) is written to
    C(cluster.yml), which is committed.
  - With O(shares_to) the master secret is also written as shares in words, of which some rebuild it. The folder must be
    empty, or hold such shares of this secret, and lie outside of every site and repository (C(PLACE_TAKEN),
    C(SHARES_EXPOSED)). This needs the Python package C(shamir-mnemonic).
  - Works on the machine that runs the playbook, whatever the host of the task is; no secret is ever returned.
  - Fails with C(SITE_SECRETS_INCOMPLETE) where only a part of the set exists, and with C(SITE_VAULT) without a
    vault password.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  cluster_name:
    description: Name of the cluster; it appears in the subject of the join CA.
    type: str
    required: true
  import_from:
    description:
      - File with a master secret in clear, in Constellation's form (C(constellation-mastersecret.json)) or as
        C(attested secret combine) wrote it, to take instead of a new one.
      - Where the site has all its secrets, or all but the master secret, it must be that of the site's cluster
        (C(CLUSTER_ID_MISMATCH)); a missing one is put back.
      - Fails with C(SITE_SECRET_MALFORMED) where the file is something else.
    type: path
  shares_from:
    description:
      - Files with shares, or folders of them, to rebuild the master secret from; otherwise as O(import_from).
      - Fails with C(SHARES_TOO_FEW), C(SHARES_UNLIKE), C(SHARE_WORDS_WRONG) and their like.
    type: list
    elements: path
  measurement_salt:
    description:
      - The measurement salt of the cluster that the master secret comes from, 64 hexadecimal digits; it is no secret.
      - The cluster id follows from both. Without it, and without one on the shares, a new one is made.
      - Fails with C(SITE_SECRET_MALFORMED) where it is something else.
    type: str
  shares_to:
    description: Folder to write shares to, as C(share-1.txt) and so on with mode 0600.
    type: path
  split:
    description: How many shares rebuild the secret and how many are made, such as V(3/5); at least 2, at most 16.
    type: str
  passphrase_file:
    description:
      - File with the passphrase of the shares, 12 to 256 printable ASCII characters; it may be C(/dev/fd/N).
      - With O(shares_from) the one that was set, with O(shares_to) a new one. None if absent.
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
  description: The files that were made, relative to the site; empty where all existed.
  returned: success
  type: list
  elements: str
  sample: [.secrets/master-secret.json, .secrets/join-ca-key.pem, .secrets/policy-key.pem, cluster.yml]
split:
  description: Whether shares were written, or would be in check mode.
  returned: success
  type: bool
  sample: false
cluster_id:
  description: The public id of the cluster, 64 hexadecimal digits.
  returned: when the secrets exist
  type: str
  sample: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
join_ca_sha256:
  description: SHA-256 of the join CA's certificate (DER).
  returned: when the secrets exist
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
"""
