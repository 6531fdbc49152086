#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_files
short_description: Write the small files of one phase and run the units that use them
version_added: 0.2.0
description:
  - Writes several files of this machine, and their directories, in one task instead of one task for each file.
  - Each file is replaced by one rename, and has its mode from the first byte on. Check mode and diff mode show all
    files.
  - The system users in O(users) are created first.
  - The systemd units in O(units) are enabled and started afterwards. They are restarted if a file was written or if
    systemd has not reloaded their unit files.
  - Do not use it for secrets, because the options of a module can be seen.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  files:
    description: Files in the order in which they are written.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description:
          - Absolute path of the file. Missing directories are created with mode V(0755).
          - The module fails with V(FILE_UNUSABLE) if the file cannot be written.
        type: str
        required: true
      content:
        description: Full text of the file.
        type: str
        required: true
      mode:
        description: Permission bits in octal.
        type: str
        default: "0644"
  users:
    description:
      - System users that the units run as, each with a group of the same name, without a shell and a home. Existing
        users are not changed.
      - The module fails with V(COMMAND_FAILED) if C(systemd-sysusers) does not create a user.
    type: list
    elements: str
    default: []
  units:
    description:
      - Units that are enabled at boot and that run with these files.
      - The module fails with V(COMMAND_FAILED) if a unit does not start.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Write a kernel setting
  attested.kubernetes.node_files:
    files:
      - path: /etc/sysctl.d/90-routing.conf
        content: |
          net.ipv4.ip_forward = 1

- name: Write two templates
  attested.kubernetes.node_files:
    files:
      - {path: /etc/a.conf, content: "{{ lookup('ansible.builtin.template', 'a.conf.j2') }}"}
      - {path: /etc/b.conf, content: "{{ lookup('ansible.builtin.template', 'b.conf.j2') }}", mode: "0600"}
  register: result

- name: Install a service with its user and configuration
  attested.kubernetes.node_files:
    files:
      - {path: /etc/a.conf, content: "{{ lookup('ansible.builtin.template', 'a.conf.j2') }}"}
      - {path: /etc/systemd/system/a.service, content: "{{ lookup('ansible.builtin.template', 'a.service.j2') }}"}
    users: [a]
    units: [a.service]

- name: Reload a service only after a change
  ansible.builtin.command:
    argv: [systemctl, reload, a.service]
  when: "'/etc/a.conf' in result.written"
"""

RETURN = r"""
users:
  description: The users that were created, or in check mode would be created.
  returned: success
  type: list
  elements: str
  sample: [attested-join]
written:
  description: The files that were written, or in check mode would be written.
  returned: success
  type: list
  elements: str
  sample: [/etc/sysctl.d/90-routing.conf]
units:
  description: The units that were enabled, started or restarted, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [a.service]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.node_files import write_files
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, Form, run_form

SPEC = ArgumentSpec(
    options={
        "files": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "path": {"type": "str", "required": True},
                "content": {"type": "str", "required": True},
                "mode": {"type": "str", "default": "0644"},
            },
        },
        "users": {"type": "list", "elements": "str", "default": []},
        "units": {"type": "list", "elements": "str", "default": []},
    }
)
FORM = Form(spec=SPEC, run=write_files)


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
