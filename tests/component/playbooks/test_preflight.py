# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook preflight, run whole: one table of machines that are, are not, and cannot be reached."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

BOOT = BOOTS / "deb13-base"
ROLES = Path(__file__).parents[3] / "roles"


def run(tmp_path: Path, hosts: dict[str, Any], settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the playbook in a site with these hosts, the first of them the only control plane."""
    (first, *others) = hosts
    groups = {
        "control_planes": {"hosts": {first: hosts[first]}},
        "workers": {"hosts": {one: hosts[one] for one in others}},
    }
    inventory = {"nodes": {"vars": settings, "children": groups}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\ninventory = hosts.yml\nstdout_callback = attested.kubernetes.stages\n", encoding="utf-8"
    )
    argv = [Path(sys.executable).parent / "ansible-playbook", "attested.kubernetes.preflight"]
    return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_one_table_says_what_is_missing_and_the_run_fails(tmp_path: Path, swtpm: Swtpm, opened: Opened):
    firmware, userspace = BOOT / "eventlog.bin", BOOT / "userspace.json"
    with opened(swtpm) as tpm:
        replay(tpm, firmware=firmware.read_bytes(), userspace=userspace.read_bytes())
    here = {"ansible_connection": "local", "ansible_host": "127.0.0.1", "attested_tcti": swtpm.tcti}
    hosts = {
        "cp-1": here,
        "w-1": {
            **here,
            "attested_tcti": "device:/dev/no-such-tpm",
            "attested_state_disk": "/dev/disk/by-id/none",
            "attested_containerd": "distribution",
        },
        "w-2": {"ansible_host": "127.0.0.1", "ansible_port": 1},
    }
    settings = {
        "attested_api_endpoint": "no-such-host.invalid:6443",
        "attested_firmware_log": str(firmware),
        "attested_userspace_log": str(userspace),
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": "/dev/shm/.ansible-test",
    }
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run(tmp_path, hosts, settings)
    rows = rows_of(done.stdout)
    assert done.returncode != 0
    assert "NODE_PREREQUISITES_MISSING: cp-1, w-1, w-2" in " ".join(done.stdout.split())
    assert {name: row[0][0] for name, row in rows.items()} == {
        "cp-1": "cannot yet",
        "w-1": "cannot yet",
        "w-2": "not reached",
    }
    assert any("no-such-host.invalid" in text for _verdict, text in rows["cp-1"])
    assert not any("/dev/no-such-tpm" in text for _verdict, text in rows["cp-1"])
    assert any("/dev/no-such-tpm" in text for _verdict, text in rows["w-1"])
    disk = {name: [text for _verdict, text in row if "STATE_DISK_MISSING" in text] for name, row in rows.items()}
    assert {name: len(texts) for name, texts in disk.items()} == {"cp-1": 0, "w-1": 1, "w-2": 0}
    packages = {name: [text for _verdict, text in row if "expected the packages" in text] for name, row in rows.items()}
    needs = {name: any("containerd" in text for text in packages[name]) for name in ("cp-1", "w-1")}
    assert needs == {"cp-1": False, "w-1": not _is_installed("containerd")}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "ansible.cfg", "hosts.yml"])


def _is_installed(package: str) -> bool:
    asked = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout == "installed"


def rows_of(output: str) -> dict[str, list[tuple[str, str]]]:
    """Return verdict and text of the table's rows by machine."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:2] == ["MACHINE", "VERDICT"])
    column = lines[start].index("VERDICT")
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in lines[start + 1 :]:
        if not line.strip() or line.startswith("  Check that every machine"):
            break
        name = line[:column].strip() or name
        found.setdefault(name, []).append((line[column:][:11].strip(), line[column + 11 :].strip()))
    return found


def test_preflight_asks_for_the_packages_that_prepare_asks_for():
    for name in ("packages", "runtime_packages", "state_disk_packages"):
        lists = [
            yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())[f"{role}_{name}"]
            for role in ("preflight", "node_prerequisites")
        ]
        assert lists[0] == lists[1]
