# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`enroll_list` as Ansible runs it: no machine is connected to, and the site has identities for all or for none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

MACHINES = 30
KEYS = {f"SN{number:03d}": f"{number:064x}" for number in range(MACHINES)}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site whose workers have a serial number each, and a list of them that has one machine more."""
    workers = {f"w-{number}": {"attested_serial": f"SN{number:03d}"} for number in range(MACHINES)}
    hosts = {"nodes": {"children": {"workers": {"hosts": workers}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")
    write(tmp_path, {**KEYS, "SN999": "ab" * 32})
    return tmp_path


def write(site: Path, keys: dict[str, str]) -> None:
    rows = "".join(f"{serial},{key}\n" for serial, key in keys.items())
    (site / "rack.csv").write_text(f"serial,ek_sha256\n{rows}", encoding="utf-8")


def enroll(site: Path, *options: str, code: int = 0) -> str:
    argv = [Path(sys.executable).parent / "ansible-playbook", "-i", "hosts.yml", ROOT / "playbooks/enroll_list.yml"]
    env = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run([*argv, *options], cwd=site, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def enrolled(site: Path) -> dict[str, str]:
    found = sorted(site.glob("host_vars/*/identity.yml"))
    return {path.parent.name: yaml.safe_load(path.read_text(encoding="utf-8"))["attested_ek"] for path in found}


def test_check_shows_what_a_run_writes_and_a_second_run_changes_nothing(site: Path) -> None:
    assert "+attested_ek: sha256:" + KEYS["SN007"] in enroll(site, "-e", "machines=rack.csv", "--check", "--diff")
    assert enrolled(site) == {}
    done = enroll(site, "-e", "machines=rack.csv")
    assert "30 enrolled: w-0, w-1, " in done
    assert "1 entries for no host of the site" in done
    assert enrolled(site) == {f"w-{number}": f"sha256:{KEYS[f'SN{number:03d}']}" for number in range(MACHINES)}
    again = enroll(site, "-e", "machines=rack.csv")
    assert "0 enrolled" in again
    assert "30 known before" in again
    assert "changed=0" in again


def test_limit_enrolls_some_machines_only(site: Path) -> None:
    assert "2 enrolled: w-3, w-4" in enroll(site, "-e", "machines=rack.csv", "--limit", "w-3,w-4")
    assert list(enrolled(site)) == ["w-3", "w-4"]


def test_a_key_twice_in_the_list_enrolls_nobody(site: Path) -> None:
    write(site, {**KEYS, "SN999": KEYS["SN007"]})
    assert "EK_SOURCE_UNUSABLE" in enroll(site, "-e", "machines=rack.csv", code=2)
    assert enrolled(site) == {}


def test_a_run_without_a_list_says_what_it_wants(site: Path) -> None:
    assert "OPTION_INVALID: expected -e machines=LIST" in enroll(site, code=2)
