#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_image
short_description: Make, sign and install one unified kernel image for many machines
version_added: 0.2.0
description:
  - Joins the kernel, an initrd and a command line to one EFI program with the tools of the distribution. Equal parts
    make equal bytes. M(attested.kubernetes.measurement_profile) computes the registers of a machine that boots it.
  - Installs it beside what the machine boots now, as the next boot alone, and makes it the first of the boot order only
    on a machine that runs it. Nothing is rebooted.
  - Needs C(objcopy) (binutils), the stub (systemd-boot-efi) and C(mkinitramfs) (initramfs-tools) with V(built),
    C(sbsign) and C(sbverify) (sbsigntool) with V(signed), C(efibootmgr) with V(installed) and V(default).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(built) writes the unsigned image O(path) from the kernel of this machine.
      - V(signed) writes O(image) with a signature to O(path), and the certificate beside it as firmware takes it
        (C(.cer), DER). It works on the machine that runs the playbook, whatever the host of the task is.
      - V(installed) puts O(image) on the EFI system partition as O(name), with a boot entry that is in no boot order,
        and makes it the next boot, unless the machine runs it or boots it by default. With Secure Boot on C(db) of the
        firmware has to have the certificate that signed it, or its hash (C(BOOT_IMAGE_UNFIT)).
      - V(default) makes it the first of the boot order. Fails with C(BOOT_FELL_BACK) where this boot is not its own.
    type: str
    choices: [built, signed, installed, default]
    required: true
  path:
    description: With V(built) and V(signed), the file to write.
    type: path
  command_line:
    description: With V(built), the kernel's command line, for all machines. It has C(root=) or C(roothash=).
    type: str
  kernel:
    description: With V(built), a kernel named C(vmlinuz-RELEASE); the newest one in C(/boot) if absent.
    type: path
  initrd:
    description:
      - With V(built), an initrd that fits each machine. If absent, C(mkinitramfs) makes one with all modules that a
        root file system may need, without the settings of this machine.
    type: path
  initrd_modules:
    description: With V(built) and without O(initrd), the only modules that the initrd has.
    type: list
    elements: str
    default: []
  stub:
    description: With V(built), the stub; that of systemd-boot-efi if absent.
    type: path
  os_release:
    description: With V(built), the file that names the operating system.
    type: path
    default: /etc/os-release
  image:
    description: With V(signed) and V(installed), the image.
    type: path
  key:
    description: With V(signed), the file of the private key (PEM, without a password), in clear or encrypted by Ansible
      Vault.
    type: path
  certificate:
    description: With V(signed), the file of its certificate (PEM).
    type: path
  name:
    description:
      - With V(installed) and V(default), the name of the image on the machine, C(EFI/Linux/<name>.efi). An image never
        changes under its name (C(BOOT_IMAGE_EXISTS)).
    type: str
  partition:
    description: With V(installed) and V(default), where the EFI system partition is mounted; C(/boot/efi), C(/boot) or
      C(/efi) if absent.
    type: path
"""

EXAMPLES = r"""
- name: Build the image
  attested.kubernetes.boot_image:
    state: built
    path: /var/lib/attested/boot-images/fleet-1.efi
    command_line: root=LABEL=root rw quiet

- name: Sign the image
  attested.kubernetes.boot_image:
    state: signed
    image: boot-images/fleet-1.unsigned.efi
    path: boot-images/fleet-1.efi
    key: .secrets/secure-boot-key.pem
    certificate: secure-boot.pem

- name: Make the image the next boot
  attested.kubernetes.boot_image:
    state: installed
    name: fleet-1
    image: /var/lib/attested/boot-images/fleet-1.efi

- name: Keep the image that the machine runs
  attested.kubernetes.boot_image:
    state: default
    name: fleet-1
"""

RETURN = r"""
path:
  description: The image.
  returned: success
  type: str
  sample: /boot/efi/EFI/Linux/fleet-1.efi
sha256:
  description: SHA-256 of the image.
  returned: with V(built) and V(signed)
  type: str
  sample: ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0
certificate:
  description: The certificate for the firmware's C(db).
  returned: with V(signed)
  type: str
  sample: boot-images/secure-boot.cer
release:
  description: The kernel's release.
  returned: with V(built) and V(signed)
  type: str
  sample: 6.1.0-56-amd64
command_line:
  description: The kernel's command line.
  returned: with V(built) and V(signed)
  type: str
  sample: root=LABEL=root rw quiet
entry:
  description: Number of the boot entry; empty in check mode before there is one.
  returned: with V(installed) and V(default)
  type: str
  sample: "0004"
running:
  description: Whether the machine was started by that entry.
  returned: with V(installed) and V(default)
  type: bool
  sample: false
is_default:
  description: Whether it is the first of the boot order.
  returned: with V(installed) and V(default)
  type: bool
  sample: false
is_next:
  description: Whether the next boot alone is that entry.
  returned: with V(installed) and V(default)
  type: bool
  sample: true
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_entry import STATES, run

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": list(STATES), "required": True},
        "path": {"type": "path"},
        "command_line": {"type": "str"},
        "kernel": {"type": "path"},
        "initrd": {"type": "path"},
        "initrd_modules": {"type": "list", "elements": "str", "default": []},
        "stub": {"type": "path"},
        "os_release": {"type": "path", "default": "/etc/os-release"},
        "image": {"type": "path"},
        "key": {"type": "path", "no_log": False},
        "certificate": {"type": "path"},
        "name": {"type": "str"},
        "partition": {"type": "path"},
    },
    required_if=(
        ("state", "built", ("path", "command_line")),
        ("state", "signed", ("image", "path", "key", "certificate")),
        ("state", "installed", ("image", "name")),
        ("state", "default", ("name",)),
    ),
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
