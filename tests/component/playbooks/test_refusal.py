# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `node` of a worker that the cluster refuses prints register and event, as the cluster noted them.

The playbook is as it is; modules and roles are replaced and answer what the test says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
REGISTER = "PCR 0: expected 66897e8a (good), got 10414b3a"
EVENT = "PCR 0 event 1 (EV_S_CRTM_VERSION): expected \"firmware version '1'\", got \"firmware version '2'\""
ANOTHERS = {"node": "w-2", "reason": "TPM_ROLLED_BACK", "count": 1, "last_seen": "2026-11-21T13:00:00Z", "message": ""}
ATTEMPTS = [
    ANOTHERS,
    {
        "node": "w-1",
        "reason": "PCR_MISMATCH",
        "count": 3,
        "last_seen": "2026-11-21T12:00:00Z",
        "message": f"expected a boot that a profile allows (nearest: good), got {REGISTER}; {EVENT}; next: policy",
    },
]
REFUSED = {"failed": True, "msg": "expected a ticket", "reason": "TICKET_REFUSED"}
OPTIONS = {
    "kubeadm_node": ("node_ip", "second_node_ip", "ignore_preflight_errors", "allow_cgroup_v1", "wait_seconds"),
    "tpm_authorization": ("tcti",),
    "cluster_info": (),
    "node_status_info": (),
    "policy_record": (),
    "node_identity": ("site", "records"),
    "cluster_objects": ("manifests", "field_manager"),
    "node_taints": ("name", "taints"),
}


def run(root: Path, *, node: dict[str, Any], attempts: dict[str, Any], alone: bool = False) -> tuple[int, str]:
    """Run the playbook for the worker w-1 whose module answers ``node``; return its exit code and what it printed."""
    collection = root / "ansible_collections" / "attested" / "kubernetes"
    shutil.copytree(ROOT / "playbooks", collection / "playbooks")
    book = collection / "playbooks" / "node.yml"
    text = book.read_text(encoding="utf-8").replace("/opt/attested/venv/bin/python", sys.executable)
    book.write_text(text, encoding="utf-8")
    for role, entry in (("control_plane", "up"), ("verification_service", "main")):
        (collection / "roles" / role / "tasks").mkdir(parents=True)
        (collection / "roles" / role / "tasks" / f"{entry}.yml").write_text("[]\n", encoding="utf-8")
    replace_modules(collection, Path(__file__).with_name("traced.py"), root, OPTIONS)
    answers = {**{name: {"phase": "Joined"} for name in OPTIONS}, "kubeadm_node": node, "cluster_info": attempts}
    (root / "answers.json").write_text(json.dumps({"results": answers}), encoding="utf-8")
    here: dict[str, Any] = {
        "ansible_connection": "local",
        "ansible_host": "127.0.0.1",
        "ansible_python_interpreter": sys.executable,
    }
    here["attested_bootstrapper"] = False
    groups = {"workers": {"hosts": {"w-1": here}}, **({} if alone else {"control_planes": {"hosts": {"cp-1": here}}})}
    (root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"children": groups}}), encoding="utf-8")
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.node", "--limit", "w-1"],
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
    return done.returncode, done.stdout + done.stderr


def test_a_refused_worker_is_told_with_register_and_event(tmp_path: Path) -> None:
    ends, said = run(tmp_path, node=REFUSED, attempts={"attempts": ATTEMPTS})
    assert "w-1: PCR_MISMATCH, 3 times, the last at 2026-11-21T12:00:00Z" in said, said
    assert REGISTER in said
    assert "TPM_ROLLED_BACK" not in said, "another machine's"
    assert "PCR 0 event 1 (EV_S_CRTM_VERSION)" in said
    assert ends == 2, said


@pytest.mark.parametrize(
    ("node", "attempts", "options"),
    [
        pytest.param({**REFUSED, "reason": "PEER_UNREACHABLE"}, {"attempts": ATTEMPTS}, {}, id="another failure"),
        pytest.param(REFUSED, {"attempts": []}, {}, id="the cluster has noted nothing"),
        pytest.param(REFUSED, {"attempts": [ANOTHERS]}, {}, id="the cluster has noted another machine"),
        pytest.param(REFUSED, {"failed": True, "msg": "no API"}, {}, id="the cluster does not answer"),
        pytest.param(REFUSED, {"attempts": ATTEMPTS}, {"alone": True}, id="a machine that runs it for itself"),
    ],
)
def test_a_worker_that_cannot_be_explained_still_fails_as_it_did(
    tmp_path: Path, node: dict[str, Any], attempts: dict[str, Any], options: dict[str, bool]
) -> None:
    ends, said = run(tmp_path, node=node, attempts=attempts, **options)
    assert ends == 2, said
    assert "expected a ticket" in said
    assert "PCR_MISMATCH" not in said
    assert "TPM_ROLLED_BACK" not in said


def test_a_worker_that_joins_is_not_explained(tmp_path: Path) -> None:
    ends, said = run(tmp_path, node={"phase": "Joined"}, attempts={"attempts": ATTEMPTS})
    assert ends == 0, said
    assert "PCR_MISMATCH" not in said
    assert "TPM_ROLLED_BACK" not in said
