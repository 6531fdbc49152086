# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the TPM is reached; each part in sync with a spec of module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of every module that speaks to a TPM."""

    # `tpm_spec`
    DOCUMENTATION = r"""
options:
  tcti:
    description:
      - How the TPM is reached, V(device:PATH) for a device of the kernel, V(swtpm:path=PATH) for a UNIX socket
        of a software TPM, or V(swtpm:host=HOST,port=PORT) for a TCP port of one.
      - Anything else fails with the reason code V(OPTION_INVALID).
    type: str
    default: device:/dev/tpmrm0
requirements:
  - a TPM 2.0
"""

    # `tpm_timeout_spec`, also of modules that ask for the TPM of the node by its configuration
    TIMEOUT = r"""
options:
  tpm_timeout_seconds:
    description:
      - How long to wait for the TPM of the node and for others that use it, in seconds.
      - When it runs out, the module fails with V(TPM_BUSY) or V(TPM_UNREACHABLE).
    type: int
    default: 10
"""

    # `tpm_logs_spec`
    LOGS = r"""
options:
  firmware_log:
    description: Event log of the firmware.
    type: path
    default: /sys/kernel/security/tpm0/binary_bios_measurements
  userspace_log:
    description: Measurement log of systemd.
    type: path
    default: /run/log/systemd/tpm2-measure.log
"""
