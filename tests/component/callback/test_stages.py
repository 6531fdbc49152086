# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback in a real run of ansible-playbook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PLAY = """
- name: Prepare the machines
  hosts: {hosts}
  gather_facts: false
  connection: local
  vars: {{ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"}}
  tasks:
    - name: Look at one thing
      ansible.builtin.assert: {{that: true}}
    - name: Look at another
      ansible.builtin.assert: {{that: true}}
    - name: Install
      ansible.builtin.debug: {{msg: "node   phase\\ncp-1   Joined"}}
      changed_when: true
    - name: Write
      ansible.builtin.assert: {{that: true}}
      changed_when: true
    - name: Build
      ansible.builtin.assert: {{that: true}}
      loop: [kubelet, etcd]
      loop_control: {{extended: true, extended_allitems: false}}
    - name: Break
      ansible.builtin.fail: {{msg: "expected six, got seven"}}
      when: {fails} and inventory_hostname == "w-1"

- name: Check the machines
  hosts: {hosts}
  gather_facts: false
  connection: local
  tasks:
    - name: Look once more
      ansible.builtin.assert: {{that: true}}
"""


@pytest.fixture
def play(tmp_path):
    def run(*arguments, fails="false", hosts="all"):
        book = tmp_path / "book.yml"
        book.write_text(PLAY.format(fails=fails, hosts=hosts), encoding="utf-8")
        return subprocess.run(
            [BIN / "ansible-playbook", "-i", "cp-1,w-1,", *arguments, book],
            cwd=tmp_path,
            env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "attested.kubernetes.stages", "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_good_run_is_a_few_lines(play):
    done = play()
    words = [row.split() for row in done.stdout.splitlines() if row.strip()]
    assert done.returncode == 0
    assert ["Prepare", "the", "machines"] in words
    looks = [row for row in words if "Look" in row]
    assert all(row[-1] == "s" and float(row[-2]) >= 1 for row in looks), "a row only where it took longer than a second"
    assert (["Check", "the", "machines"] in words) == any("once" in row for row in looks)
    assert any(row[:4] == ["Write", "changed", "cp-1,", "w-1"] for row in words)
    assert ["cp-1", "Joined"] in words
    items = sorted(" ".join(row[1:7]) for row in words if row[:1] == ["-"])
    assert items == 2 * ["1 of 2: kubelet ok after"] + 2 * ["2 of 2: etcd ok after"]
    assert words[-1][0] == "Done"
    assert max(len(row) for row in done.stdout.splitlines()) <= 100


def test_a_failure_is_shown_in_full(play):
    done = play(fails="true")
    assert done.returncode != 0
    assert "w-1: expected six, got seven" in done.stdout
    assert "again    ansible-playbook book.yml -v" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("Failed after")


def test_verbose_is_what_ansible_prints(play):
    done = play("-v")
    assert "PLAY [Prepare the machines]" in done.stdout
    assert "PLAY RECAP" in done.stdout


@pytest.mark.parametrize("loud", [pytest.param((), id="by default"), pytest.param(("-v",), id="with -v")])
def test_a_run_that_matches_no_host_is_an_error(play, loud):
    assert play(*loud, hosts="nobody").returncode == 2


def test_a_play_without_hosts_is_said(play):
    done = play(hosts="nobody")
    assert "no host matched: nothing was done" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("Nothing was done")
