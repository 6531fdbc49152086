# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to the TPM; each part in sync with a spec of module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of every module that uses a TPM."""

    # `tpm_spec`
    DOCUMENTATION = r"""
options:
  tcti:
    description:
      - Connection to the TPM. V(device:PATH) is a device of the kernel, V(swtpm:path=PATH) a UNIX socket of a software
        TPM, and V(swtpm:host=HOST,port=PORT) a TCP port of a software TPM.
      - The module fails with V(OPTION_INVALID) for any other value.
    type: str
    default: device:/dev/tpmrm0
requirements:
  - a TPM 2.0
"""

    # `tpm_timeout_spec`, also of modules that find the TPM in the configuration of the node
    TIMEOUT = r"""
options:
  tpm_timeout_seconds:
    description:
      - How long to wait for the TPM of the node and for other programs that use it, in seconds.
      - After this time the module fails with V(TPM_BUSY) or V(TPM_UNREACHABLE).
    type: int
    default: 10
"""

    # `tpm_logs_spec`
    LOGS = r"""
options:
  firmware_log:
    description: Path of the event log of the firmware.
    type: path
    default: /sys/kernel/security/tpm0/binary_bios_measurements
  userspace_log:
    description: Path of the measurement log of systemd.
    type: path
    default: /run/log/systemd/tpm2-measure.log
"""
