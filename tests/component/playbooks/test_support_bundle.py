# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook support_bundle, run whole on this machine: one archive; a node that is not reached is a line in it."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS
from ansible_collections.attested.kubernetes.tests.support.canary import spellings

PLANTED = ("hosts.yml", "cluster.yml", "host_vars/w-1/identity.yml", "policy/lab.yml")
TESTED_TCTI = "device:/dev/no-such-tpm"


@pytest.fixture
def planted() -> str:
    """A secret that no pattern knows."""
    return secrets.token_hex(24)


@pytest.fixture
def site(tmp_path: Path, planted: str) -> Path:
    """A site with a secret in each of its files."""
    here = {"ansible_connection": "local", "ansible_host": "127.0.0.1", "ansible_become_password": planted}
    nodes = {"w-1": here, "w-2": {"ansible_host": "127.0.0.1", "ansible_port": 1}}
    settings = {
        "attested_cluster_name": "prod",
        "attested_policy_dir": "{{ inventory_dir }}/policy",
        "attested_tcti": TESTED_TCTI,
        "attested_firmware_log": str(BOOTS / "deb13-base" / "eventlog.bin"),
        "attested_userspace_log": "/no/such/log",
        "ansible_remote_tmp": "/dev/shm/.ansible-test",
    }
    files = {
        "hosts.yml": json.dumps({"nodes": {"vars": settings, "hosts": nodes}}),
        "ansible.cfg": "[defaults]\ninventory = hosts.yml\nstdout_callback = attested.kubernetes.stages\n",
        "cluster.yml": f"cluster_id: '{'00' * 32}'\nelse: {planted}\n",
        ".secrets/join-ca-key.pem": planted,
        "host_vars/w-1/identity.yml": f"attested_ek: sha256:{'11' * 32}\nx_password: {planted}\n",
        "policy/lab.yml": f"kind: MeasurementProfile\nmetadata: {{name: lab}}\nother: {planted}\n",
    }
    for name, text in files.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "site"


def run(site: Path, *words: str) -> str:
    """Run the playbook, which has to succeed, and return what it printed."""
    argv = [Path(sys.executable).parent / "ansible-playbook", "attested.kubernetes.support_bundle"]
    argv += ["-e", f"support_bundle_interpreter={sys.executable}", *words]
    done = subprocess.run(argv, cwd=site, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_archive_holds_what_came_and_names_what_did_not(site: Path, planted: str):
    planted_in = [name for name in (*PLANTED, ".secrets/join-ca-key.pem") if planted in (site / name).read_text()]
    assert len(planted_in) == len(PLANTED) + 1
    printed = run(site)
    (path,) = (site / "support").iterdir()
    assert str(path) in printed
    assert "nothing came of w-2" in printed
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with tarfile.open(path) as tar:
        files = {member.name.partition("/")[2]: tar.extractfile(member).read() for member in tar.getmembers()}
    manifest = json.loads(files.pop("manifest.json"))
    assert {row["path"]: row["sha256"] for row in manifest["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
    assert {"site/cluster.yml", "site/host_vars/w-1.yml", "site/policy/lab.yml"} <= set(files)
    assert json.loads(files["nodes/w-1/digests/eventlog.bin"])["size"] > 0
    assert b"MemTotal" in files["nodes/w-1/system/proc/meminfo"]
    left_out = {(row["part"], row["what"]): row["why"] for row in manifest["left_out"]}
    assert "refused" in left_out["nodes/w-2", "everything"]
    assert "no-such-tpm" in left_out["nodes/w-1", "registers"]
    leaks = [name for name, data in files.items() if any(one in data for one in spellings(planted.encode()))]
    assert leaks == []
    assert planted not in json.dumps(manifest)


def test_check_mode_writes_nothing(site: Path):
    run(site, "--check", "--limit=w-1")
    assert not (site / "support").exists()
