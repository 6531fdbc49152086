#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rescue
short_description: Derive keys from a master secret, try them on disks, and copy a dead control plane's data out
version_added: 0.2.0
description:
  - Does what the commands C(attested rescue keys) and C(attested rescue extract) do, by the same code, on the machine
    that runs the playbook. Needs no cluster and no site. Nothing is written to a disk.
  - The master secret is read from a file and stays in memory; a result holds names of secrets, paths and hashes, never
    a secret. What is written, only its owner can read.
  - To open a disk the run must be root's, on a machine with C(cryptsetup), dm-crypt and dm-integrity.
  - Fails with C(DISK_KEY_WRONG) where a key does not open its disk, with C(RESCUE_NO_DISK) and C(LUKS_...) for what is
    no state disk, with C(CLUSTER_ID_MISMATCH) where secret and O(state_file) are of two clusters; nothing is written
    then.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details:
      - Keys are derived and tried on headers, and no disk is opened.
  diff_mode:
    support: full
    details:
      - Names of files alone, never what is in them.
  idempotent:
    support: partial
    details:
      - Keys are written where the files do not hold them already. Data is copied into a new folder only.
options:
  master_secret:
    description: File with C(constellation-mastersecret.json), or with the C(master-secret.json) of an opened kit.
    type: path
  disks:
    description:
      - LUKS UUIDs; or disks, images (also with partitions) and copies of headers, on which the key is tried. Without
        any, O(data_of) is tried.
    type: list
    elements: str
    default: []
  state_file:
    description: File C(constellation-state.yaml); it gives the salt, and proves that the secret is this cluster's.
    type: path
  measurement_salt:
    description: The salt alone, 64 hexadecimal digits; it is no secret. Else C(RESCUE_FILE_MALFORMED).
    type: str
  insecure_any_header:
    description: Derive the key of a disk whose header is not as it must be, with a warning, without trying it.
    type: bool
    default: false
  keys_to:
    description:
      - Folder for the keys, best below C(/dev/shm). Without it none is written.
      - Fails with C(SHARES_EXPOSED) for a place in a site or a repository; so does O(data_to).
    type: path
  data_of:
    description: Disk or image to copy PKI and etcd out of; it is opened and mounted read only, and closed again.
    type: path
  partition:
    description: Which one of O(data_of), where several hold a disk (C(RESCUE_SEVERAL_DISKS)).
    type: int
  mounted:
    description: Folder where the disk is mounted already.
    type: path
  data_to:
    description: New or empty folder for what is copied, on an encrypted disk or tmpfs. Else C(FILE_UNUSABLE).
    type: path
"""

EXAMPLES = r"""
- name: Show the keys of a secret and check them on a disk
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
  description: Name of the secret.
  returned: with O(master_secret)
  type: str
  sample: aa4c6e156acfb346d915eee7d6325c24
cluster_id:
  description: Id of the cluster, empty without a salt.
  returned: with O(master_secret)
  type: str
  sample: 1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9
pcr15_sha256:
  description: What register PCR 15 of the nodes held, empty without a salt.
  returned: with O(master_secret)
  type: str
  sample: 8cbed04bc5c36a7612da8f7659e78d17113175a922cc9925f266a2fc96eaa0ba
pcr15_sha384:
  description: The same of the other bank.
  returned: with O(master_secret)
  type: str
  sample: b7c0685fbeb8b900562e27a04170f10dc15ea4f2795b322153f4eb7e911b4df6
ssh_ca:
  description: Public key of the emergency SSH CA.
  returned: with O(master_secret)
  type: str
  sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL7qm2RSbOr+DBRDDn+qZEhauN1R7MgQZK5cu8ETyVfF
disks:
  description: What was found of each disk, and whether its key opens it.
  returned: with O(master_secret)
  type: list
  elements: dict
  sample:
    - disk: 51111111-2222-4333-8444-555555555555
      from: disk.img
      header: as it must be
      key: opens the disk
files:
  description: The files of O(keys_to), which hold secrets.
  returned: with O(master_secret)
  type: list
  elements: str
  sample: [/dev/shm/keys/measurement-secret]
data:
  description: What was copied, the path of the list of file hashes, and the hash of that list; empty in check mode.
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
