#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_key
short_description: Keep the endorsement key and an attestation key in the TPM
version_added: 0.1.0
description:
  - Makes the endorsement key (EK) and a restricted attestation key (AK, ECC P-256, primary of the endorsement
    hierarchy) and keeps both at persistent handles, so that no later use has to make them; an RSA EK takes a
    hardware TPM ten seconds and more.
  - Both are derived from the TPM's own seed, so making them again gives the same keys. A handle in use is never
    overwritten; the key is then made at each use.
  - Fails with C(TPM_EK_UNSUPPORTED) where the TPM is certified only for other keys, C(TPM_HIERARCHY_AUTH) where a
    hierarchy has a password that the machine does not hold, or holds wrongly (see
    M(attested.kubernetes.tpm_authorization)), C(TPM_HIERARCHY_DISABLED) where the owner or the endorsement hierarchy
    is off, C(TPM_PCR_UNAVAILABLE) without an active SHA-256 bank,
    C(TPM_UNREACHABLE), C(TPM_BUSY) or C(OPTION_INVALID).
  - A TPM in lockout is a warning (C(TPM_LOCKOUT)); nothing of this collection needs what a lockout bars.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.tpm
  - attested.kubernetes.tpm.timeout
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Create the persistent keys of the TPM
  attested.kubernetes.attestation_key:

- name: Create the keys of a software TPM
  attested.kubernetes.attestation_key:
    tcti: swtpm:path=/srv/tpm/tpm

- name: Check which keys would be created
  attested.kubernetes.attestation_key:
  check_mode: true
  diff: true
"""

RETURN = r"""
ek_sha256:
  description: SHA-256 of the EK's SubjectPublicKeyInfo, the name of the machine, 64 hexadecimal digits.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ak_name:
  description: TPM name of the AK, hexadecimal.
  returned: success
  type: str
  sample: 000b9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
ek_certified:
  description: Whether the TPM holds a certificate for its EK.
  returned: success
  type: bool
  sample: true
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    run_module,
    tpm_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import run

SPEC = tpm_spec().merged(tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, run, libraries=("cryptography",))


if __name__ == "__main__":
    main()
