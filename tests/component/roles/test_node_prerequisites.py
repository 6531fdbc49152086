# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role says before it touches anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
BOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - ansible.builtin.include_role:
        name: attested.kubernetes.node_prerequisites
      vars:
        node_prerequisites_packages: [no-such-package-one, no-such-package-two]
        node_prerequisites_state_disk: "{{ disk | default('') }}"
        node_prerequisites_state_disk_packages: [no-such-package-three]
"""


def said(tmp_path, *words):
    """Return what a run says that fails."""
    (tmp_path / "book.yml").write_text(BOOK, encoding="utf-8")
    argv = [BIN / "ansible-playbook", "-i", "localhost,", "book.yml", *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "NODE_PREREQUISITES_MISSING" in done.stdout
    return " ".join(done.stdout.split())


def test_every_missing_package_is_named_at_once(tmp_path):
    text = said(tmp_path)
    assert "apt-get install no-such-package-one no-such-package-two'" in text
    assert "dm_integrity" not in text


def test_a_state_disk_asks_for_its_packages_too(tmp_path):
    text = said(tmp_path, "-e", "disk=/dev/disk/by-id/virtio-state")
    assert "apt-get install no-such-package-one no-such-package-two no-such-package-three'" in text
