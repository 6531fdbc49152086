# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a machine that becomes a node by itself: the role's real tasks, what they hear is told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

BIN = Path(sys.executable).parent
ROLE = Path(__file__).parents[3] / "roles" / "bootstrapper"
NEXT = """
import json, pathlib
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"name": {}, "state": {}}, supports_check_mode=True)
path = pathlib.Path(%r)
told = json.loads(path.read_text())
path.write_text(json.dumps(told[1:] or told))
answer = told[0]
module.fail_json(**answer) if answer.get("failed") else module.exit_json(**answer)
"""
JOINED = {"phase": "Joined", "locked": True, "kubelet_active": True, "bootstrapper_active": False}
ASKING = {"phase": "Asking", "locked": False, "kubelet_active": False, "bootstrapper_active": True}
QUIET = {"reason": None, "message": None, "to_do": "Nothing yet."}
GAVE_UP = {
    **ASKING,
    "bootstrapper_active": False,
    "reason": "NODELOCK_FOREIGN",
    "message": "expected a lock of ours",
    "to_do": "Reboot it.",
}


class Bed:
    """A collection with the role as it is, but for the module of the node's status and the one of systemd."""

    def __init__(self, root: Path) -> None:
        self.root = root
        collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(ROLE, collection / "roles" / "bootstrapper")
        tasks = collection / "roles" / "bootstrapper" / "tasks" / "wait.yml"
        text = tasks.read_text(encoding="utf-8").replace(
            "ansible.builtin.systemd_service:", "attested.kubernetes.unit:"
        )
        tasks.write_text(text, encoding="utf-8")
        (collection / "plugins" / "modules").mkdir(parents=True)
        for name in ("node_status_info", "unit"):
            module = collection / "plugins" / "modules" / f"{name}.py"
            module.write_text("#!/usr/bin/python\n" + NEXT % str(root / f"{name}.json"), encoding="utf-8")

    def wait(self, *states: dict[str, Any], unit: dict[str, Any], check: bool = False) -> tuple[int, str, str]:
        """Wait for a machine that says ``states`` one after the other; return exit code, output and recap."""
        (self.root / "node_status_info.json").write_text(json.dumps([{**QUIET, **one} for one in states]))
        (self.root / "unit.json").write_text(json.dumps([unit]))
        wait = {"name": "attested.kubernetes.bootstrapper", "tasks_from": "joined"}
        task = {"ansible.builtin.include_role": wait, "vars": {"bootstrapper_wait_seconds": 4}}
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        play = {"hosts": "all", "gather_facts": False, "vars": local, "tasks": [task]}
        (self.root / "book.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
        argv = [BIN / "ansible-playbook", "-i", "w-1,", "book.yml", *(["--check"] if check else [])]
        env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.root), "ANSIBLE_COLLECTIONS_PATH": str(self.root)}
        done = subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, " ".join(re.findall(r"changed=\d+|failed=\d+", done.stdout))


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


STARTED = {"changed": True, "status": {}}
RUNNING = {"changed": False, "status": {}}


def test_a_node_is_left_alone(bed: Bed) -> None:
    code, said, recap = bed.wait(JOINED, unit={"failed": True, "msg": "nobody may ask systemd"})
    assert (code, recap) == (0, "changed=0 failed=0"), said


def test_a_machine_that_is_none_is_started_and_waited_for(bed: Bed) -> None:
    code, said, recap = bed.wait(ASKING, ASKING, JOINED, unit=STARTED)
    assert (code, recap) == (0, "changed=1 failed=0"), said
    assert "RETRYING" in said


def test_a_bootstrapper_that_is_at_work_is_waited_for(bed: Bed) -> None:
    code, said, recap = bed.wait(ASKING, JOINED, unit=RUNNING)
    assert (code, recap) == (0, "changed=0 failed=0"), said


def test_a_bootstrapper_that_gave_up_ends_the_waiting_with_its_reason(bed: Bed) -> None:
    unit = {"failed": True, "msg": "Unable to start service attested-bootstrapper.service: Job failed"}
    code, said, _recap = bed.wait(ASKING, GAVE_UP, unit=unit)
    assert code != 0
    assert "NODELOCK_FOREIGN: expected a lock of ours. Reboot it." in said
    assert "RETRYING" not in said


def test_time_that_is_over_is_said(bed: Bed) -> None:
    code, said, _recap = bed.wait(ASKING, unit=STARTED)
    assert code != 0
    assert "NODE_NOT_JOINED: expected a node within 4 s, the machine is Asking. Nothing yet." in said


def test_a_machine_that_was_prepared_without_a_bootstrapper_is_not_waited_for(bed: Bed) -> None:
    unit = {"failed": True, "msg": "Could not find the requested service attested-bootstrapper.service: host"}
    code, said, _recap = bed.wait(ASKING, unit=unit)
    assert code != 0
    assert "Could not find the requested service" in said
    assert "RETRYING" not in said


def test_check_mode_says_what_would_be_started_and_waits_for_nobody(bed: Bed) -> None:
    code, said, recap = bed.wait(ASKING, unit=STARTED, check=True)
    assert (code, recap) == (0, "changed=1 failed=0"), said
    assert "RETRYING" not in said
