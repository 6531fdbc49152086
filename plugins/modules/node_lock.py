#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_lock
short_description: Lock a machine to one cluster until its next reset
version_added: 0.2.0
description:
  - Extends a register of the TPM with the cluster id, once between two resets of the machine. It cannot be undone.
  - Before the lock the register must be I(unlocked), which means that the log of systemd explains its value. A machine
    that is locked to the same cluster is not changed.
  - The module fails with V(NODELOCK_FOREIGN) if the register contains an event that no log explains, and with
    V(NODELOCK_OTHER_CLUSTER) if the machine is locked to another cluster. In both cases, reset the machine.
  - The lock proves that only logged events extended the register since the reset. It does not prove membership, because
    root on the machine can extend the register too.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  cluster_id:
    description:
      - Public id of the cluster, 64 hexadecimal digits.
      - The module fails with V(NODELOCK_CLUSTER_ID_MALFORMED) for another value.
    type: str
    required: true
  register:
    description:
      - Number of the register that holds the lock.
      - The module fails with V(NODELOCK_REGISTER_RESETTABLE) for registers from 16 on, because they can be reset while
        the machine runs.
    type: int
    default: 15
  directory:
    description: Directory in memory for the lock file, the log and the marker C(locked).
    type: path
    default: /run/attested
  firmware_log:
    description: Path of the firmware's event log. A missing file counts as empty.
    type: path
    default: /sys/kernel/security/tpm0/binary_bios_measurements
  userspace_log:
    description: Path of systemd's measurement log. A missing file counts as empty.
    type: path
    default: /run/log/systemd/tpm2-measure.log
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
- name: Lock this machine to its cluster
  attested.kubernetes.node_lock:
    cluster_id: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6

- name: Check whether the machine is locked, without a change
  attested.kubernetes.node_lock:
    cluster_id: "{{ cluster_id }}"
  check_mode: true
  register: lock

- name: Use a software TPM and the logs of a recorded boot
  attested.kubernetes.node_lock:
    cluster_id: "{{ cluster_id }}"
    tcti: swtpm:path=/srv/tpm/tpm
    firmware_log: /srv/boot/eventlog.bin
    userspace_log: /srv/boot/userspace.json
"""

RETURN = r"""
lock:
  description: State of the register, V(unlocked) or V(locked).
  returned: success
  type: str
  sample: locked
cluster_id:
  description: Id of the cluster that the machine is locked to. Empty if it is unlocked.
  returned: success
  type: str
  sample: 128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    run_module,
    tpm_spec,
    tpm_timeout_spec,
)

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import run  # noqa: F401

SPEC = ArgumentSpec(
    options={
        "cluster_id": {"type": "str", "required": True},
        "register": {"type": "int", "default": 15},
        "directory": {"type": "path", "default": "/run/attested"},
        "firmware_log": {"type": "path", "default": "/sys/kernel/security/tpm0/binary_bios_measurements"},
        "userspace_log": {"type": "path", "default": "/run/log/systemd/tpm2-measure.log"},
    }
).merged(tpm_spec(), tpm_timeout_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("evidence.node_lock:run"))


if __name__ == "__main__":
    main()
