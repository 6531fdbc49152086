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
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

BIN = Path(sys.executable).parent
ROLE = Path(__file__).parents[3] / "roles" / "bootstrapper"
# The answers of a host are told one after the other, the last again and again.
NEXT = """
import json, pathlib


def call(root, name, host, params):
    path = pathlib.Path(root, f"{host}.{name}.json")
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told[1:] or told))
    return told[0]
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
STARTED = {"changed": True, "status": {"ActiveState": "inactive"}}
RELOADED = {"changed": True, "status": {"ActiveState": "active"}}
NOBODY = {"failed": True, "msg": "nobody may ask systemd"}
REFUSED = {"failed": True, "msg": "Unable to start service attested-bootstrapper.service: Job failed"}
ABSENT = {"failed": True, "msg": "Could not find the requested service attested-bootstrapper.service: host"}
MACHINES: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "joined": ((JOINED,), NOBODY),
    "started": ((ASKING, ASKING, JOINED), STARTED),
    "at-work": ((ASKING, JOINED), RELOADED),
    "gave-up": ((ASKING, GAVE_UP), REFUSED),
    "too-late": ((ASKING,), STARTED),
    "unprepared": ((ASKING,), ABSENT),
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
        (root / "next.py").write_text(NEXT, encoding="utf-8")
        replace_modules(collection, root / "next.py", root, {"node_status_info": (), "unit": ("name", "state")})

    def wait(self, *machines: str, check: bool = False) -> Said:
        """Wait for machines, each of which tells its states one after the other."""
        for name in machines:
            states, unit = MACHINES[name]
            answers = {"node_status_info": [{**QUIET, **one} for one in states], "unit": [unit]}
            for module, told in answers.items():
                (self.root / f"{name}.{module}.json").write_text(json.dumps(told))
        wait = {"name": "attested.kubernetes.bootstrapper", "tasks_from": "joined"}
        task = {"ansible.builtin.include_role": wait, "vars": {"bootstrapper_wait_seconds": 4}}
        local = {"ansible_connection": "local", "ansible_remote_tmp": f"{self.root}/tmp/{{{{ inventory_hostname }}}}"}
        play = {"hosts": "all", "gather_facts": False, "vars": local, "tasks": [task]}
        (self.root / "book.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
        words = ["-f", str(len(machines)), *(["--check"] if check else [])]
        argv = [BIN / "ansible-playbook", "-i", ",".join([*machines, ""]), "book.yml", *words]
        env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.root), "ANSIBLE_COLLECTIONS_PATH": str(self.root)}
        done = subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        return Said(done.stdout)


class Said:
    """What one run printed, by machine."""

    def __init__(self, output: str) -> None:
        self.output = output

    def of(self, machine: str) -> str:
        """Return the lines that name the machine."""
        return "\n".join(line for line in self.output.splitlines() if f"[{machine}]" in line)

    def recap(self, machine: str) -> str:
        (line,) = re.findall(rf"^{machine} +: .*$", self.output, re.MULTILINE)
        return " ".join(re.findall(r"changed=\d+|failed=\d+", line))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """One run that waits for all machines beside each other."""
    return Bed(tmp_path_factory.mktemp("joined")).wait(*MACHINES)


def test_a_node_is_left_alone(said: Said) -> None:
    assert said.recap("joined") == "changed=0 failed=0", said.output


def test_a_machine_that_is_none_is_started_and_waited_for(said: Said) -> None:
    assert said.recap("started") == "changed=1 failed=0", said.output
    assert "RETRYING" in said.of("started")


def test_a_bootstrapper_that_is_at_work_is_woken_and_waited_for(said: Said) -> None:
    assert said.recap("at-work") == "changed=0 failed=0", said.output


def test_a_bootstrapper_that_gave_up_ends_the_waiting_with_its_reason(said: Said) -> None:
    assert said.recap("gave-up") == "changed=0 failed=1"
    assert "NODELOCK_FOREIGN: expected a lock of ours. Reboot it." in said.of("gave-up")
    assert "RETRYING" not in said.of("gave-up")


def test_time_that_is_over_is_said(said: Said) -> None:
    assert said.recap("too-late") == "changed=1 failed=1"
    expected = "NODE_NOT_JOINED: expected a node within 4 s, the machine is Asking. Nothing yet."
    assert expected in said.of("too-late")


def test_a_machine_that_was_prepared_without_a_bootstrapper_is_not_waited_for(said: Said) -> None:
    assert said.recap("unprepared") == "changed=0 failed=1"
    assert "Could not find the requested service" in said.of("unprepared")
    assert "RETRYING" not in said.of("unprepared")


def test_check_mode_says_what_would_be_started_and_waits_for_nobody(tmp_path: Path) -> None:
    said = Bed(tmp_path).wait("too-late", check=True)
    assert said.recap("too-late") == "changed=1 failed=0", said.output
    assert "RETRYING" not in said.output
