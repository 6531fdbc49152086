#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: next_boot_info
short_description: Read what a machine boots next
version_added: 0.2.0
description:
  - Reads what the firmware starts next, from its boot entries and the EFI system partition. A unified kernel image is
    read completely. For GRUB the files that it measures are read, which show whether the next boot is the same as the
    last boot.
  - Reads the unified kernel images on the EFI system partition (below C(/boot/efi), C(/boot) or C(/efi)) and the newest
    kernel in C(/boot) with its initrd. It returns the values that they will be measured as.
  - The result is an unverified statement of the machine. Use it only to decide about a reboot.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes.reader
options:
  root:
    description: Path of the root file system.
    type: path
    default: /
"""

EXAMPLES = r"""
- name: Read the measurements of the next boot
  attested.kubernetes.next_boot_info:
  register: found

- name: Check whether an active profile allows the next boot
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    next_boot: "{{ found.next_boot }}"

- name: Warn about a next boot that no profile accepts
  attested.kubernetes.measurement_profile_info:
    site: "{{ inventory_dir }}"
    profiles: "{{ attested_profiles }}"
    next_boots: "{{ found.next_boots }}"

- name: Read the next boot of a mounted file system
  attested.kubernetes.next_boot_info:
    root: /mnt/target
"""

RETURN = r"""
next_boot:
  description: What the firmware starts next. C(problem) is the reason if its measurement is not known.
  returned: success
  type: dict
  sample:
    path: /boot/efi/EFI/debian/shimx64.efi
    kernel: ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0
    initrd: 9c58742dc537b1a08d9c28a3e19382b765a69feecb31da9fc15338c6c9f90c0b
    files: {grub/grub.cfg: 0f2c5b53b0ae8ed5ddf6a1d0a35f4b0a86bb5d35dd2a9bbd3d7e2f4b5f9f4f53}
    image: null
    problem: ""
next_boots:
  description: Each unified kernel image and the newest kernel. Hashes are SHA-256, hexadecimal.
  returned: success
  type: list
  elements: dict
  sample:
    - path: /boot/vmlinuz-6.12.117+deb13-cloud-amd64
      kernel: ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0
      initrd: 9c58742dc537b1a08d9c28a3e19382b765a69feecb31da9fc15338c6c9f90c0b
      files: {}
      image: null
      problem: ""
uefi:
  description: Whether UEFI started the machine. A container and a machine with a BIOS have no boot entries to read.
  returned: success
  type: bool
"""

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

if TYPE_CHECKING:  # it is shipped for nodes whose wheel has another version
    from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_entry import run_next  # noqa: F401

SPEC = ArgumentSpec(options={"root": {"type": "path", "default": "/"}})


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.boot_entry:run_next"), libraries=("cryptography",))


if __name__ == "__main__":
    main()
