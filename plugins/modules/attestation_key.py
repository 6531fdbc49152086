#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: attestation_key
short_description: Create the endorsement key and an attestation key in the TPM
version_added: 0.2.0
description:
  - Creates the endorsement key (EK) and a restricted attestation key (AK, ECC P-256, primary of the endorsement
    hierarchy). Both are stored at persistent handles, so that later uses do not create them again. A hardware TPM takes
    ten seconds or more to create an RSA EK.
  - Both keys are derived from the TPM's seed, so each creation gives the same keys. A handle in use is never
    overwritten. If its handle is in use, the key is created at each use.
  - The module fails with C(TPM_EK_UNSUPPORTED) if the TPM has certificates for other kinds of keys only. It fails with
    C(TPM_HIERARCHY_AUTH) if a hierarchy has a password that the machine does not hold or holds wrongly (see
    M(attested.kubernetes.tpm_authorization)). It fails with C(TPM_HIERARCHY_DISABLED) if the owner or the endorsement
    hierarchy is disabled, and with C(TPM_PCR_UNAVAILABLE) without an active SHA-256 bank. It also fails with
    C(TPM_UNREACHABLE), C(TPM_BUSY) or C(OPTION_INVALID).
  - The module warns if the TPM is in lockout (C(TPM_LOCKOUT)). The collection uses nothing that a lockout blocks.
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
  description: SHA-256 of the EK's SubjectPublicKeyInfo, 64 hexadecimal digits. It identifies the machine.
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
