# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real runs of ansible-playbook on this machine: what stands in for a module says and does what the module does."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings
from ansible_collections.attested.kubernetes.tests.support.two_ways import BY_MODULE, HERE, write_node_config

if TYPE_CHECKING:
    from collections.abc import Mapping

BIN = Path(sys.executable).parent
MODULE_USED = "Using module file"
PROGRAM = """#!/bin/sh
{ pwd; umask; tty; env | grep -v -e ^_= -e ^OLDPWD= -e ^SHLVL= -e ^ATTESTED_WAY= | sort; } >> "$0.surroundings"
wc -c >> "$0.surroundings"
echo "the server is on fire" >&2
exit 1
"""
NOT_COMPARED = {"exception", "invocation"}
"""Where in the code something failed, and what a module was called with: for whoever debugs Ansible."""


@dataclass(frozen=True, slots=True)
class Bed:
    """A directory with a playbook, a node's configuration and a program that stands where kubectl does."""

    root: Path

    @property
    def work(self) -> Path:
        """What the tasks write to."""
        return self.root / "work"

    @property
    def remote(self) -> Path:
        """What Ansible's modules lie in."""
        return self.root / "there"

    def run(self, *tasks: dict[str, Any], **keywords: Any) -> tuple[list[Any], str]:
        """Return the result of each task, and what was printed."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        named = [{**task, "register": f"r{number}", "ignore_errors": True} for number, task in enumerate(tasks)]
        results = "{{ [" + ", ".join(f"r{number}" for number in range(len(tasks))) + "] | to_json }}"
        told = {"dest": str(self.root / "results.json"), "content": results, "mode": "0600"}
        keep = {"ansible.builtin.copy": told, "check_mode": False, "no_log": True, "diff": False}
        inner = {"block": named, **keywords}
        play = {"hosts": "all", "gather_facts": False, "tasks": [inner, keep]}
        (self.root / "book.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
        said = self._play()
        return json.loads((self.root / "results.json").read_text(encoding="utf-8")), said

    def _play(self) -> str:
        inventory = {"all": {"hosts": {"w-1": {"ansible_connection": "local"}}}}
        inventory["all"]["hosts"]["w-1"]["ansible_python_interpreter"] = "{{ ansible_playbook_python }}"
        (self.root / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        environment = {
            **{name: os.environ[name] for name in ("ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH") if name in os.environ},
            "ANSIBLE_HOME": str(self.root / "home"),
            "ANSIBLE_KEEP_REMOTE_FILES": "1",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_REMOTE_TEMP": str(self.remote),
            "HOME": str(self.root),
            "LC_ALL": "C.UTF-8",
            "PATH": os.pathsep.join((str(self.root / "bin"), str(BIN), os.defpath)),
        }
        done = subprocess.run(
            [BIN / "ansible-playbook", "-i", "hosts.yml", "book.yml", "-vvv"],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            umask=0o027,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def modules_used(self, said: str) -> int:
        """Return how many modules of ours were run as such."""
        return sum(MODULE_USED in line and "attested/kubernetes" in line for line in said.splitlines())

    def surroundings(self) -> str:
        """Return what the program found around itself, and forget it."""
        path = self.root / "bin" / "kubectl.surroundings"
        text = path.read_text(encoding="utf-8")
        path.unlink()
        return text


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed(tmp_path)
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    write_node_config(tmp_path / "node.yml")
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    return made


def files(path: Path, text: str = "two\n", **more: Any) -> dict[str, Any]:
    """Return a task that writes a file."""
    return {"attested.kubernetes.node_files": {"files": [{"path": str(path), "content": text, **more}]}}


def compared(value: Any) -> Any:
    """Return a result without what is not compared, the results of a loop too."""
    if isinstance(value, list):
        return [compared(one) for one in value]
    if isinstance(value, dict):
        return {name: compared(one) for name, one in value.items() if name not in NOT_COMPARED}
    return value


def cases(bed: Bed) -> dict[str, dict[str, Any]]:
    """Return tasks by what they are a case of."""
    target = bed.work / "deep" / "file"
    info = {"attested.kubernetes.node_status_info": {"node_config": str(bed.root / "node.yml")}}
    return {
        "written": files(target),
        "there": files(target),
        "other mode": {**files(target, mode="0600"), "diff": True},
        "other text": {**files(target, "three\n", mode="0600"), "diff": True},
        "in check mode": {**files(bed.work / "never"), "check_mode": True, "diff": True},
        "no directory": files(bed.root / "file" / "below"),
        "unknown option": {"attested.kubernetes.node_files": {"files": [], "fiels": []}},
        "missing option": {"attested.kubernetes.node_files": {"units": []}},
        "wrong type": {"attested.kubernetes.node_files": {"files": [{"path": "/x", "content": "", "mode": ["0644"]}]}},
        "status": info,
        "no configuration": {"attested.kubernetes.node_status_info": {"node_config": "/no/such/file"}},
        "a program that fails": {"attested.kubernetes.cluster_info": {"kubeconfig": "/no/such/file"}},
        "objects": {"attested.kubernetes.cluster_objects": {"manifests": ["kind: ConfigMap"], "kubeconfig": "/no"}},
        "no key service": {"attested.kubernetes.policy_record": {"policy": "{}", "socket": "/no/such/socket"}},
        "a process of its own": {"attested.kubernetes.kubeadm_node": {"node_ip": "w-1", "node_config": str(bed.root)}},
        "an unknown option of its own": {"attested.kubernetes.kubeadm_cluster": {"node_nam": "cp-1"}},
        "a template": {**files(bed.work / "templated", "{{ inventory_hostname }}\n")},
        "a loop": {**files(bed.work / "{{ item }}"), "loop": ["a", "b"]},
    }


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Return mode and content of everything below a directory."""
    found = sorted(root.rglob("*"))
    return {str(one): (one.stat().st_mode, one.read_text() if one.is_file() else "") for one in found}


def test_both_ways_end_alike(bed: Bed) -> None:
    """Results, files with their modes, and what a program finds around itself: directory, umask, environment."""
    tasks = cases(bed)
    here, said = bed.run(*tasks.values())
    written, around = tree(bed.work), bed.surroundings()
    assert bed.modules_used(said) == 0
    there, said = bed.run(*tasks.values(), environment=dict(BY_MODULE))
    assert bed.modules_used(said) == len(tasks) + 1  # two of the loop
    for name, left, right in zip(tasks, compared(here), compared(there), strict=True):
        assert left == right, name
    assert (written, around) == (tree(bed.work), bed.surroundings())
    endings = {name: bool(one.get("failed")) for name, one in zip(tasks, here, strict=True)}
    failing = {"no directory", "unknown option", "missing option", "wrong type", "no configuration"}
    assert {name for name, failed in endings.items() if failed} == failing | {
        "a program that fails",
        "objects",
        "no key service",
        "a process of its own",
        "an unknown option of its own",
    }
    assert written


@pytest.mark.parametrize(
    "keywords",
    [
        pytest.param({"become": True, "become_method": "su"}, id="become"),
        pytest.param({"vars": {"ansible_python_interpreter": "/no/such/python"}}, id="another Python"),
    ],
)
def test_anything_else_is_the_modules(bed: Bed, keywords: dict[str, Any]) -> None:
    (result,), said = bed.run(files(bed.work / "file"), **keywords)
    assert bed.modules_used(said) == 1
    if "vars" in keywords:
        assert "/no/such/python" in str(result)
    else:
        assert result["changed"], result
        assert (bed.work / "file").read_text() == "two\n"


def test_a_module_whose_work_is_installed_needs_our_environment(bed: Bed) -> None:
    """By a Python with the wheel the work is done, as far as it goes here; by another one the task leads to prepare."""
    task = {"attested.kubernetes.join_ticket": {"node_config": str(bed.root / "node.yml")}}
    (by_ours,), said = bed.run(task)
    assert (by_ours["reason"], bed.modules_used(said)) == ("JOIN_CA_PIN_INVALID", 1)
    (by_another,), _said = bed.run(task, vars={"ansible_python_interpreter": "/usr/bin/python3"})
    assert by_another["reason"] == "DEPENDENCY_MISSING"
    assert by_another["command"].endswith(".prepare")


@pytest.mark.parametrize("way", [HERE, BY_MODULE], ids=["here", "by the module"])
def test_defaults_of_a_module_hold(bed: Bed, way: Mapping[str, str]) -> None:
    wanted = [{"path": str(bed.work / "file"), "content": "default\n"}]
    defaults = {"attested.kubernetes.node_files": {"files": wanted}}
    (result,), _said = bed.run({"attested.kubernetes.node_files": {}}, module_defaults=defaults, environment=dict(way))
    assert result["written"] == [str(bed.work / "file")]


def _holders(root: Path, needles: list[bytes]) -> list[str]:
    """Return the files below ``root`` that hold one of the needles."""
    texts = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return [path for path, text in texts.items() if any(needle in text for needle in needles)]


def test_nothing_of_what_a_task_is_given_leaves_the_process(bed: Bed) -> None:
    """The search is tried first: what a module is given lies in a file of Ansible's."""
    planted, secret = secrets.token_hex(16).encode(), secrets.token_hex(16).encode()
    with ProcessWatch() as watch:
        bed.run(
            {**files(bed.work / "planted", planted.decode()), "environment": dict(BY_MODULE), "no_log": True},
            {"ansible.builtin.command": {"argv": ["sleep", "1"]}, "environment": {"PLANTED": planted.decode()}},
        )
        assert _holders(bed.remote, spellings(planted))
        shutil.rmtree(bed.remote)
        task = {**files(bed.work / "secret", secret.decode(), mode="0600"), "no_log": True}
        _results, said = bed.run(task, {"ansible.builtin.command": {"argv": ["sleep", "1"]}})
        seen = watch.seen()
    assert any(planted in text for channel, text in seen if channel == "environment")
    assert (bed.work / "secret").read_bytes() == secret
    found = [channel for channel, text in seen if any(needle in text for needle in spellings(secret))]
    assert found == []
    assert secret.decode() not in said
    assert _holders(bed.remote, spellings(secret)) == []
    assert _holders(bed.root / "home", spellings(secret)) == []
