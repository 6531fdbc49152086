# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of a module from the node's environment: an archive as Ansible makes it, beside a wheel or none."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import VERSION, installed
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import NodeLockError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, UTILS, reachable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WORK, REFUSING = "bundle.node_files:write_files", "evidence.node_lock:run"
PLACE = "ansible_collections/attested/kubernetes"
SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[1:3]
from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
try:
    result = installed(sys.argv[3])(json.loads(sys.argv[4]), True)
    said = {"changed": result.changed, "file": sys.modules[type(result).__module__].__file__}
except AttestedError as error:
    said = {"code": error.code, "msg": error.message, "hint": error.hint, "command": error.reason.value.command}
print(json.dumps(said))
"""


@dataclass(frozen=True, slots=True)
class Node:
    """An archive with `installed` and what it imports, and a directory of installed packages."""

    archive: Path
    packages: Path

    def run(self, params: Mapping[str, Any], work: str = WORK) -> dict[str, Any]:
        """Return what the work says in a process that has no other packages."""
        argv = [sys.executable, "-I", "-S", "-c", SCRIPT, str(self.archive), str(self.packages), work]
        done = subprocess.run([*argv, json.dumps(params)], capture_output=True, check=True)
        said: dict[str, Any] = json.loads(done.stdout)
        return said


def node(tmp_path: Path, *, version: str | None, ships: str = "module_utils/core/installed.py") -> Node:
    """Return a node whose wheel has ``version``; None for no wheel. The archive holds what ``ships`` imports too."""
    starts, packages = {UTILS / "core" / "installed.py", UTILS.parent / ships}, tmp_path / "packages"
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for path in starts.union(*map(reachable, starts)):
            archive.write(path, f"{PLACE}/{path.relative_to(ROOT)}")
        for above in (
            "ansible_collections",
            "ansible_collections/attested",
            PLACE,
            f"{PLACE}/plugins",
            f"{PLACE}/plugins/module_utils",
        ):
            archive.writestr(f"{above}/__init__.py", "")
    packages.mkdir()
    if version is not None:
        link = packages / PLACE
        link.parent.mkdir(parents=True)
        link.symlink_to(ROOT)
        about = packages / f"attested_kubernetes-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: attested-kubernetes\nVersion: {version}\n", encoding="utf-8")
    return Node(tmp_path / "archive.zip", packages)


def files(path: Path | str, **more: Any) -> dict[str, Any]:
    return {"files": [{"path": str(path), "content": "x", "mode": "0644", **more}], "units": []}


def test_the_version_is_that_of_the_collection():
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"] == VERSION


def test_in_a_whole_tree_it_is_the_function_itself(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "file").chmod(0o644)
    assert installed(WORK)(files(tmp_path / "file"), True).changed is False
    assert installed(WORK)(files(tmp_path / "other"), True).changed is True


def test_in_an_archive_it_is_the_function_of_the_wheel(tmp_path):
    said = node(tmp_path, version=VERSION).run(files(tmp_path / "other"))
    assert said["changed"] is True
    assert said["file"].startswith(str(tmp_path / "packages"))


@pytest.mark.parametrize(
    ("version", "place"),
    [
        pytest.param(VERSION, "packages", id="the wheel"),
        pytest.param(None, "archive.zip", id="no wheel"),
        pytest.param("0.0.9", "archive.zip", id="an older wheel"),
    ],
)
def test_an_archive_that_ships_the_work_does_it_where_the_wheel_has_another_version(tmp_path, version, place):
    said = node(tmp_path, version=version, ships="modules/node_files.py").run(files(tmp_path / "other"))
    assert said["changed"] is True
    assert said["file"].startswith(str(tmp_path / place))


def test_an_error_of_the_wheel_is_one_of_the_archive(tmp_path):
    params = {"directory": "/none", "firmware_log": "/none", "userspace_log": "/none", "cluster_id": "not hexadecimal"}
    with pytest.raises(NodeLockError) as here:
        installed(REFUSING)(params, True)
    said = node(tmp_path, version=VERSION).run(params, REFUSING)
    assert said["code"] == here.value.code == "NODELOCK_CLUSTER_ID_MALFORMED"
    assert (said["msg"], said["hint"]) == (here.value.message, here.value.hint)


@pytest.mark.parametrize(
    ("version", "reason", "next_command"),
    [
        pytest.param(None, Reason.DEPENDENCY_MISSING, "prepare", id="no wheel"),
        pytest.param("0.0.9", Reason.COLLECTION_DIFFERS, "upgrade", id="an older one"),
        pytest.param(f"{VERSION}.post1", Reason.COLLECTION_DIFFERS, "upgrade", id="a later one"),
    ],
)
def test_another_version_is_refused_and_the_next_command_is_named(tmp_path, version, reason, next_command):
    said = node(tmp_path, version=version).run(files(tmp_path / "other"))
    assert (said["code"], said["command"]) == (reason.name, reason.value.command)
    assert said["command"].endswith(f".{next_command}")
    assert f"attested-kubernetes {VERSION} in {sys.executable}, found {version or 'none'}" in said["msg"]
    assert not (tmp_path / "other").exists()
