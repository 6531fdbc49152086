# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `versions`: with the real table and module, and control planes that are replaced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
SILENT = {"failed": True, "msg": "KUBECTL_FAILED: expected the API server to answer"}


def nodes(**versions: str) -> dict[str, Any]:
    """Return what `cluster_info` answers for these nodes, and a machine that never joined."""
    rows = [
        {"name": name, "version": version, "registered": True, "role": "control-plane" if "cp" in name else "worker"}
        for name, version in versions.items()
    ]
    return {"nodes": [*rows, {"name": "w9", "version": "", "registered": False, "role": "worker"}]}


def run(root: Path, *options: str, wanted: str = "", **answers: dict[str, Any]) -> tuple[int, list[str]]:
    """Run the playbook, in a site with two control planes where there are answers; return exit code and lines."""
    collection = root / "ansible_collections" / "attested" / "kubernetes"
    shutil.copytree(ROOT / "playbooks", collection / "playbooks")
    book = collection / "playbooks" / "versions.yml"
    book.write_text(book.read_text().replace("/opt/attested/venv/bin/python", sys.executable))
    (collection / "roles").mkdir()
    (collection / "roles" / "bundle_builder").symlink_to(ROOT / "roles" / "bundle_builder")
    replace_modules(collection, Path(__file__).with_name("traced.py"), root, {"cluster_info": ()})
    (collection / "plugins" / "modules").mkdir()
    for name in ("release_info.py", "cluster_info.py"):
        shutil.copy(ROOT / "plugins" / "modules" / name, collection / "plugins" / "modules" / name)
    results = {f"cluster_info {name}": answer for name, answer in answers.items()}
    (root / "answers.json").write_text(json.dumps({"results": results}))
    hosts = {name: {"ansible_remote_tmp": str(root / name), "ansible_connection": "local"} for name in answers}
    site = {"vars": {"attested_kubernetes_version": wanted}, "children": {"control_planes": {"hosts": hosts}}}
    (root / "hosts.yml").write_text(yaml.safe_dump({"nodes": site}))
    done = subprocess.run(
        [BIN / "ansible-playbook", *(["-i", "hosts.yml"] if answers else []), "attested.kubernetes.versions", *options],
        cwd=root,
        env={
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(root),
            "ANSIBLE_COLLECTIONS_PATH": str(root),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.strip().strip('",') for line in (done.stdout + done.stderr).splitlines()]
    return done.returncode, lines


def test_without_a_cluster_it_lists_what_can_be_had(tmp_path: Path) -> None:
    ends, lines = run(tmp_path)

    assert ends == 0, lines
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("1.3")}
    assert rows["1.35.4"] == ["yes", "3.6.6", "1.13.1", "3.10.1", "2.3.4", "1.4.3", "1.8.0", "1.36.0", "4.3.1", "-"]
    assert rows["1.36.4"][0] == "-"
    assert "NEXT nothing: no node was read; a new cluster gets 1.37.2" in lines


def test_it_names_the_next_upgrade_of_the_cluster_and_why(tmp_path: Path) -> None:
    """The first control plane does not answer, so the second one is asked."""
    running = nodes(cp1="v1.35.4", cp2="v1.35.4", w1="v1.35.4")
    ends, lines = run(tmp_path, "-e", "version=1.37.2", wanted="1.35", cp1=SILENT, cp2=running)

    assert ends == 0, lines
    assert [line.split()[-3:] for line in lines if line.startswith("1.35.4")] == [["cp1", "cp2", "w1"]]
    next_one = "1.35.4 -> 1.37.2 goes by 1.36: kubeadm upgrades one minor version at a time"
    assert f"NEXT 1.36.3 on the control planes cp1 cp2: {next_one}" in lines
    assert "THEN 1.37.2 on the control planes cp1 cp2: the next minor version" in lines
    assert "BETWEEN attested_kubernetes_steps: [1.36.3] lets one upgrade go there" in lines
    assert any(line.startswith("THEN 1.37.2 on the workers w1: once, after the API servers") for line in lines)


def test_a_cluster_at_the_sites_version_has_no_next_upgrade(tmp_path: Path) -> None:
    ends, lines = run(tmp_path, wanted="1.35", cp1=nodes(cp1="v1.35.4"))

    assert ends == 0, lines
    assert "NEXT nothing: all nodes run 1.35.4" in lines
    assert any(line.startswith("NEWEST 1.37.2: -e version=1.37.2") for line in lines)


def test_a_downgrade_fails_after_the_table(tmp_path: Path) -> None:
    ends, lines = run(tmp_path, wanted="1.35", cp1=nodes(cp1="v1.36.3", w1="v1.34.1"))

    assert ends == 2, lines
    assert "NOT IN THE TABLE w1 runs 1.34.1" in lines
    assert any("RELEASE_DOWNGRADE: expected a version that is not older" in line for line in lines)
    assert not any(line.startswith("NEXT") for line in lines)


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    ends, lines = run(tmp_path, wanted="1.35", cp1=SILENT)

    assert ends == 0, lines
    assert "NO ANSWER cp1: KUBECTL_FAILED: expected the API server to answer" in lines
    assert "NEXT nothing: no node was read; a new cluster gets 1.35.4" in lines
