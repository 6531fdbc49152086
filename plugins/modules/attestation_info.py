#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_info
short_description: Read the identity of this machine and evidence of its boot
version_added: 0.2.0
description:
  - Reads the TPM of a prepared machine. Without O(challenge) the module returns the machine's identity and registers.
  - With O(challenge) the module proves that the machine holds its keys, and returns a quote of the registers that is
    bound to the exchange. M(attested.kubernetes.attestation_verification) and M(attested.kubernetes.cluster) send the
    challenge and verify the answer.
  - Only a verifier can judge evidence. The result does not tell whether the machine can be trusted.
  - The module fails with the reason codes of the TPM, C(NODE_CONFIG_MALFORMED), C(EVIDENCE_MALFORMED) or
    C(PROTOCOL_VERSION).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
  - attested.kubernetes.node_config
  - attested.kubernetes.tpm.timeout
options:
  purpose:
    description: What the evidence is for. A verifier refuses evidence for another purpose.
    type: str
    choices: [enroll, init, share, verify]
    default: verify
  challenge:
    description: Challenge of a verifier, base64 of C(attested.v1.ChallengeResponse).
    type: str
  endorsement_key:
    description:
      - Which endorsement key the machine shows. V(first) is the key that all programs of the collection use. It is the
        RSA-2048 key if the TPM holds a certificate for it, else the ECC P-256 key if the TPM holds a certificate for
        that key, else the RSA-2048 key. V(second) is the other one of the two keys.
      - The second key is not stored in the TPM. A hardware TPM takes ten seconds or more to create an RSA key.
    type: str
    choices: [first, second]
    default: first
"""

EXAMPLES = r"""
- name: Show the registers of this machine
  attested.kubernetes.attestation_info:
  register: machine

- name: Show the identity of this machine
  ansible.builtin.debug:
    msg: "{{ machine.node }} is ek {{ machine.ek_sha256 }}, its lock is {{ machine.nodelock }}"

- name: Answer the challenge of a custom verifier
  attested.kubernetes.attestation_info:
    purpose: verify
    challenge: "{{ challenge_of_my_verifier }}"

- name: Show the second endorsement key of the machine's TPM
  attested.kubernetes.attestation_info:
    endorsement_key: second
  register: second
"""

RETURN = r"""
node:
  description: Name of the node in its configuration.
  returned: success
  type: str
  sample: w-1
ek_sha256:
  description: SHA-256 of the endorsement key's SubjectPublicKeyInfo.
  returned: without challenge
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ak_name:
  description: TPM name of the attestation key, hexadecimal.
  returned: without challenge
  type: str
  sample: 000b9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_certified:
  description: Whether the TPM holds a certificate for its endorsement key.
  returned: without challenge
  type: bool
  sample: true
nodelock:
  description: State of the register that holds the node lock.
  returned: without challenge
  type: str
  sample: unlocked
registers:
  description: Registers 0 to 15 of the SHA-256 bank, hexadecimal.
  returned: without challenge
  type: dict
  sample: {"0": "9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e"}
challenge_request:
  description: What a verifier needs to challenge this machine, base64 of C(attested.v1.ChallengeRequest).
  returned: without challenge
  type: str
  sample: CrYC
binding:
  description: The answer, base64 of C(attested.v1.Binding).
  returned: with challenge
  type: str
  sample: ChDF
event_logs:
  description: The event logs of this boot, base64 of C(attested.v1.EventLogs).
  returned: with challenge
  type: str
  sample: CtUe
handle:
  description: Handle of the answer that the node keeps until it receives the box that is sealed to it.
  returned: with challenge, for init
  type: str
  sample: 0123456789abcdef0123456789abcdef
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
    tpm_timeout_spec,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.node.witness import run_attestation_info  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "purpose": {"type": "str", "choices": ["enroll", "init", "share", "verify"], "default": "verify"},
        "challenge": {"type": "str"},
        "endorsement_key": {"type": "str", "choices": ["first", "second"], "default": "first"},
    }
).merged(node_config_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(
        SPEC, installed("node.witness:run_attestation_info"), libraries=("cryptography", "google.protobuf", "yaml")
    )


if __name__ == "__main__":
    main()
