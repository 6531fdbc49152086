#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_verification
short_description: Challenge a node and verify its evidence on the admin's machine
version_added: 0.2.0
description:
  - Requests evidence from the node of the task with a new challenge, and verifies it against the site on the machine
    that runs the playbook. The module changes nothing. It fails if the node does not satisfy the policy.
  - With O(purpose=enroll) the module proves which TPM is in the machine. It can also create a profile from what the
    machine booted.
  - With O(purpose=verify) the machine must be enrolled under this name, match an active profile, and be locked to this
    cluster.
  - A refusal has its reason code. C(PCR_MISMATCH) names the register and the event.
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
    description: What is verified.
    type: str
    choices: [enroll, verify]
    default: verify
  learn_profile:
    description: Return a profile of this name that allows what the machine booted; only with O(purpose=enroll).
    type: str
  preset:
    description:
      - What the learned profile is bound to.
      - V(auto) binds it to the boot programs, the keys, the kernel, the initrd and the command line. The machine may
        boot by GRUB, from a unified kernel image, or a kernel from the firmware. If Secure Boot is not proven to be on,
        the profile is also bound to the firmware.
      - V(image) binds it to one unified kernel image. V(strict) binds it to every register with a reference value.
      - V(secure-boot) binds it to the state and the keys of Secure Boot alone, for a machine that boots only a signed
        unified kernel image. The profile stays valid after kernel updates. Its posture is V(keys), because any signed
        image passes.
      - The module fails with C(PRESET_UNMET) if the machine does not fit the preset.
    type: str
    choices: [auto, image, secure-boot, strict]
    default: auto
  read_boot:
    description: Return a description of what the machine booted; only with O(purpose=enroll).
    type: bool
    default: false
  insecure_first_use:
    description: Accept a TPM without a trusted certificate; only with O(purpose=enroll). Warns at each use.
    type: bool
    default: false
  replacing:
    description: If true, another TPM than that of the site is expected, because the machine of this node is replaced.
    type: bool
    default: false
  second_key:
    description:
      - If true, prove the second endorsement key of the TPM as well, with the same attestation key; only with
        O(purpose=enroll).
      - The second key must be certified by the configured CAs or be listed in C(attested_ek_aliases) of the site, or
        O(insecure_first_use) must be set. Otherwise the module fails with V(EK_NOT_VOUCHED_FOR).
      - A key of another TPM is refused with V(ACTIVATION_NOT_PROVEN), V(AK_MISMATCH) or V(TPM_CREDENTIAL_REFUSED). A
        key that the site assigns to another machine is refused with V(EK_ALIAS_TAKEN). The first key again is refused
        with V(EK_SECOND_REPEATED).
    type: bool
    default: false
  delivered:
    description:
      - Path of a file, on the machine that runs the playbook, that names the TPM which this machine must prove.
      - The file is an EK certificate or public key in PEM or DER, or a list of serial numbers. The list is YAML
        (C(serial) to hash), or CSV with the columns C(serial) and C(ek_sha256).
      - The module fails with V(EK_NOT_AS_DELIVERED) for another TPM, and with V(EK_SOURCE_UNUSABLE) if the list has no
        entry for this machine.
    type: path
  serial:
    description: Serial number of the machine in the list of O(delivered).
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

- name: Describe the boot of a machine and which parts of it are proven
  attested.kubernetes.attestation_verification:
    site: "{{ inventory_dir }}"
    purpose: enroll
    endorsement_authorities: [/etc/tpm-makers/roots.pem]
    read_boot: true
"""

RETURN = r"""
ek_sha256:
  description: SHA-256 of the endorsement key's SubjectPublicKeyInfo. It identifies the machine.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_proven:
  description:
    - SHA-256 of the endorsement key that the machine showed. It differs from RV(ek_sha256) if that key is an alias.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_aliases:
  description: >-
    Endorsement key to the second key of its TPM, in the form of C(attested_ek_aliases). It contains the pairs of this
    machine and of the earlier machines of this node that the site has recorded or that were proven now.
  returned: if O(purpose=enroll)
  type: dict
  sample: {"sha256:9f2c": "sha256:31aa"}
ek_certified:
  description: Whether the certificate chain was verified up to a configured CA.
  returned: success
  type: bool
  sample: true
nodelock:
  description: Verified state of the node lock.
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
  returned: if O(purpose=enroll)
  type: str
  sample: "certificate chain of Infineon (IFX) SLB9670, root CN=Infineon OPTIGA(TM) RSA Root CA"
boot:
  description: Lines that describe the boot. A line that is not proven is taken from the log.
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
  returned: if O(purpose=verify)
  type: str
  sample: r650-debian13
posture:
  description: How far the evidence of the profile reaches.
  returned: if O(purpose=verify)
  type: str
  sample: boot
role:
  description: The registered role.
  returned: if O(purpose=verify)
  type: str
  sample: worker
finding:
  description: The entry for the report of M(attested.kubernetes.fleet_verification).
  returned: if O(purpose=verify)
  type: dict
  sample: {"node": "w-1", "outcome": "verified", "over": "ssh"}
"""
