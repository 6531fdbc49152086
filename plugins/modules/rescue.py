#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rescue
short_description: Derive keys from a master secret, test them on disks, and copy the data of a lost control plane
version_added: 0.2.0
description:
  - Does the same as the commands C(attested rescue keys) and C(attested rescue extract), with the same code, on the
    machine that runs the playbook. It needs neither a cluster nor a site. The module never writes to a disk.
  - The master secret is read from a file and stays in memory. The result contains names of secrets, paths and hashes,
    but no secret. Only the owner can read the written files.
  - To open a disk the module must run as root, on a machine with C(cryptsetup), dm-crypt and dm-integrity.
  - The module fails with C(DISK_KEY_WRONG) if a key does not open its disk, and with C(RESCUE_NO_DISK) or C(LUKS_...)
    if there is no state disk. It fails with C(CLUSTER_ID_MISMATCH) if the secret and O(state_file) are of different
    clusters. Then nothing is written.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details:
      - Keys are derived and tested on headers, but no disk is opened.
  diff_mode:
    support: full
    details:
      - Only the names of files are shown, never their content.
  idempotent:
    support: partial
    details:
      - Keys are written only if the files do not contain them. Data is copied only into a new folder.
options:
  master_secret:
    description: Path of the file C(constellation-mastersecret.json), or C(master-secret.json) of a decrypted kit.
    type: path
  disks:
    description:
      - LUKS UUIDs, or paths of disks, images (also with partitions) and copies of headers, on which the key is tested.
        If unset, O(data_of) is tested.
    type: list
    elements: str
    default: []
  state_file:
    description:
      - Path of the file C(constellation-state.yaml). It contains the salt, and proves that the secret is of this
        cluster.
    type: path
  measurement_salt:
    description:
      - Measurement salt, 64 hexadecimal digits. It is not secret. The module fails with C(RESCUE_FILE_MALFORMED) for
        another value.
    type: str
  insecure_any_header:
    description:
      - If true, derive the key of a disk although its header is not as expected. The module warns and does not test the
        key.
    type: bool
    default: false
  keys_to:
    description:
      - Folder for the keys, preferably below C(/dev/shm). If unset, no key is written.
      - The module fails with C(SHARES_EXPOSED) for a folder in a site or a repository, also for O(data_to).
    type: path
  data_of:
    description:
      - Disk or image from which PKI and etcd are copied. It is opened and mounted read-only, and closed afterwards.
    type: path
  partition:
    description:
      - Number of the partition of O(data_of), if several partitions contain a state disk (C(RESCUE_SEVERAL_DISKS)).
    type: int
  mounted:
    description: Folder in which the disk is already mounted.
    type: path
  data_to:
    description:
      - New or empty folder for the copied data, on an encrypted disk or tmpfs. Otherwise the module fails with
        C(FILE_UNUSABLE).
    type: path
"""

EXAMPLES = r"""
- name: Derive the keys of a secret and test them on a disk
  attested.kubernetes.rescue:
    master_secret: constellation-mastersecret.json
    state_file: constellation-state.yaml
    disks: [disk.img]

- name: Write the key of a disk by its UUID
  attested.kubernetes.rescue:
    master_secret: constellation-mastersecret.json
    disks: [51111111-2222-4333-8444-555555555555]
    keys_to: /dev/shm/keys

- name: Copy PKI and etcd from an image
  attested.kubernetes.rescue:
    master_secret: constellation-mastersecret.json
    data_of: disk.img
    data_to: /dev/shm/rescued
"""

RETURN = r"""
master_secret_fingerprint:
  description: Fingerprint that names the secret.
  returned: with O(master_secret)
  type: str
  sample: aa4c6e156acfb346d915eee7d6325c24
cluster_id:
  description: Id of the cluster. Empty without a salt.
  returned: with O(master_secret)
  type: str
  sample: 1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9
pcr15_sha256:
  description: Value of register PCR 15 of the nodes in the SHA-256 bank. Empty without a salt.
  returned: with O(master_secret)
  type: str
  sample: 8cbed04bc5c36a7612da8f7659e78d17113175a922cc9925f266a2fc96eaa0ba
pcr15_sha384:
  description: Value of register PCR 15 of the nodes in the SHA-384 bank. Empty without a salt.
  returned: with O(master_secret)
  type: str
  sample: b7c0685fbeb8b900562e27a04170f10dc15ea4f2795b322153f4eb7e911b4df6
ssh_ca:
  description: Public key of the emergency SSH CA.
  returned: with O(master_secret)
  type: str
  sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL7qm2RSbOr+DBRDDn+qZEhauN1R7MgQZK5cu8ETyVfF
disks:
  description: Findings for each disk, and whether its key opens it.
  returned: with O(master_secret)
  type: list
  elements: dict
  sample:
    - disk: 51111111-2222-4333-8444-555555555555
      from: disk.img
      header: as it must be
      key: opens the disk
files:
  description: The files in O(keys_to), which contain secrets.
  returned: with O(master_secret)
  type: list
  elements: str
  sample: [/dev/shm/keys/measurement-secret]
data:
  description: What was copied, the path of the list of file hashes, and the hash of that list. Empty in check mode.
  returned: with O(data_to)
  type: dict
  sample:
    disk: 51111111-2222-4333-8444-555555555555
    files: 4
    bytes: 16801799
    pki: /dev/shm/rescued/kubernetes/pki
    etcd: /dev/shm/rescued/var/lib/etcd
    left_out: []
    missing: []
    sums: /dev/shm/rescued/SHA256SUMS
    sums_sha256: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
    manifest: /dev/shm/rescued/manifest.json
"""
