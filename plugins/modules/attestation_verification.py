#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_verification
short_description: Challenge a node and judge its evidence on the admin's machine
version_added: 0.1.0
description:
  - Asks the node of the task for evidence over a fresh challenge and verifies it against the site, on the machine that
    runs the playbook. It changes nothing; a node that is not what the policy says fails the task.
  - With O(purpose=enroll) it proves which TPM is in the machine and may learn a profile from what it booted.
  - With O(purpose=verify) the machine must be enrolled under this name, match an active profile, and be locked to this
    cluster.
  - A refusal carries its reason code; C(PCR_MISMATCH) names register and event.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.node_config
  - attested.kubernetes.site
  - attested.kubernetes.site.policy
  - attested.kubernetes.site.verifier
  - attested.kubernetes.tpm.timeout
options:
  purpose:
    description: Which question is asked.
    type: str
    choices: [enroll, verify]
    default: verify
  learn_profile:
    description: Return a profile of this name that allows what the machine booted; only with O(purpose=enroll).
    type: str
  preset:
    description:
      - What the learned profile holds on to.
      - V(auto) is what loads and what is loaded (programs, keys, kernel, initrd, command line), by GRUB, from a unified
        kernel image or by firmware itself; where Secure Boot is not proven to be on, firmware as well.
      - V(image) is one unified kernel image; V(strict) is every register with a reference value.
      - V(secure-boot) is Secure Boot's state and keys alone, for a machine that starts a signed unified kernel image
        and nothing else. It stays valid after kernel updates. Its posture is V(keys): any signed image passes.
      - Fails with C(PRESET_UNMET) where the machine is not what the preset is for.
    type: str
    choices: [auto, image, secure-boot, strict]
    default: auto
  read_boot:
    description: Return what the machine booted, in words; only with O(purpose=enroll).
    type: bool
    default: false
  insecure_first_use:
    description: Accept a TPM without a trusted certificate; only with O(purpose=enroll). Warns at each use.
    type: bool
    default: false
  replacing:
    description: Another TPM than the site names is what is wanted, since the machine of this node is replaced.
    type: bool
    default: false
  second_key:
    description:
      - Prove the second endorsement key of the TPM as well, by the same attestation key; only with O(purpose=enroll).
      - It must be certified by the configured authorities, or be the one that the site names in
        C(attested_ek_aliases), or O(insecure_first_use) is set; else V(EK_NOT_VOUCHED_FOR). A key of another TPM is
        refused (V(ACTIVATION_NOT_PROVEN), V(AK_MISMATCH), V(TPM_CREDENTIAL_REFUSED)), one that the site
        gives to another machine with V(EK_ALIAS_TAKEN), and the first key once more with V(EK_SECOND_REPEATED).
    type: bool
    default: false
  delivered:
    description:
      - File on the machine that runs the playbook, which says the TPM that this machine must prove. An EK certificate
        or public key in PEM or DER, or a list of serial numbers as YAML (C(serial) to hash) or as CSV with the columns
        C(serial) and C(ek_sha256). Another TPM is refused with V(EK_NOT_AS_DELIVERED), a file without this machine
        with V(EK_SOURCE_UNUSABLE).
    type: path
  serial:
    description: Serial number of the machine in such a list.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Verify every node against the policy
  attested.kubernetes.attestation_verification:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"

- name: Identify the TPM of a machine
  attested.kubernetes.attestation_verification:
    site: "{{ inventory_dir }}"
    purpose: enroll
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
  register: found

- name: Identify both endorsement keys of a TPM
  attested.kubernetes.attestation_verification:
    site: "{{ inventory_dir }}"
    purpose: enroll
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    second_key: true
  register: found

- name: Learn a profile from a reference machine
  attested.kubernetes.attestation_verification:
    site: "{{ inventory_dir }}"
    purpose: enroll
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    learn_profile: r650-debian13

- name: Read the boot of a machine and its proven parts
  attested.kubernetes.attestation_verification:
    site: "{{ inventory_dir }}"
    purpose: enroll
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    read_boot: true
"""

RETURN = r"""
ek_sha256:
  description: SHA-256 of the endorsement key's SubjectPublicKeyInfo, the name of the machine.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_proven:
  description: The same of the endorsement key that the machine showed; another one where that is an alias.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_aliases:
  description: >-
    Endorsement key to the second key of its chip, of this machine and of those that were this node before, as far
    as the site knows them or they were proven now; in the form of C(attested_ek_aliases).
  returned: for enroll
  type: dict
  sample: {"sha256:9f2c": "sha256:31aa"}
ek_certified:
  description: Whether a certificate chain to a configured authority was checked.
  returned: success
  type: bool
  sample: true
nodelock:
  description: The verified reading of the node lock.
  returned: success
  type: str
  sample: locked
registers:
  description: The verified register values, hexadecimal.
  returned: success
  type: dict
  sample: {"7": "9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e"}
known_by:
  description: Who vouches for the TPM.
  returned: for enroll
  type: str
  sample: "certificate chain of Infineon (IFX) SLB9670, root CN=Infineon OPTIGA(TM) RSA Root CA"
boot:
  description: The boot line by line; a line that is not proven is a hint of the log.
  returned: with read_boot
  type: list
  elements: dict
  sample: [{"topic": "secure boot", "text": "on", "pcr": 7, "event": 4, "proven": true}]
profile_manifest:
  description: The learned profile as YAML.
  returned: with learn_profile
  type: str
  sample: "kind: MeasurementProfile"
profile:
  description: The profile that the machine matches.
  returned: for verify
  type: str
  sample: r650-debian13
posture:
  description: How far the evidence reaches.
  returned: for verify
  type: str
  sample: boot
role:
  description: The registered role.
  returned: for verify
  type: str
  sample: worker
finding:
  description: The same as M(attested.kubernetes.fleet_verification) finds, for its report.
  returned: for verify
  type: dict
  sample: {"node": "w-1", "outcome": "verified", "over": "ssh"}
"""
