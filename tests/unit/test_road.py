# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test says of a playbook that failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Run

COMMAND = {"command": "sh -c 'echo no such mirror >&2; exit 3'"}
ASSERTION = {"assert": {"that": "false", "fail_msg": "OPTION_INVALID: expected true"}}


@pytest.mark.parametrize(
    ("task", "said"),
    [
        pytest.param(COMMAND, "no such mirror", id="a command, by its standard error"),
        pytest.param(ASSERTION, "OPTION_INVALID", id="a module, by its message"),
    ],
)
def test_the_task_that_failed_and_its_words_come_first(tmp_path, task, said):
    tasks = [{"name": "First", "command": "true"}, {"name": "Second", **task}]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    plain = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_HOME": str(tmp_path)}
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-vvvv", "play.yml"],
        cwd=tmp_path, env={**os.environ, **plain}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaint = Run(name="play", returncode=done.returncode, output=done.stdout).complaint()
    assert complaint.startswith("Second: ")
    assert said in complaint[:120]


def test_a_playbook_that_did_not_begin_says_what_it_printed():
    assert Run(name="play", returncode=1, output="ERROR! no such playbook\n").complaint() == "ERROR! no such playbook"
