# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role says before it touches anything, and what it installs with dnf."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import FAILED, Case, run_cases

DISKS = {"no state disk": "", "a state disk": "/dev/disk/by-id/virtio-state"}
LOOK = {
    "ansible.builtin.include_role": {"name": "attested.kubernetes.node_prerequisites"},
    "vars": {
        "node_prerequisites_packages": ["no-such-package-one", "no-such-package-two"],
        "node_prerequisites_state_disk": "{{ disk }}",
        "node_prerequisites_state_disk_packages": ["no-such-package-three"],
    },
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a machine that lacks packages hears."""
    known = {"ansible_python_interpreter": sys.executable}
    cases = {name: Case(tasks=[LOOK], variables={**known, "disk": disk}) for name, disk in DISKS.items()}
    found: dict[str, Any] = run_cases(
        tmp_path_factory.mktemp("cases"), cases, hosts={"all": {"hosts": {"localhost": {}}}}
    )
    return {name: " ".join(found[name]["localhost"][FAILED].split()) for name in DISKS}


def test_every_missing_package_is_named_at_once(said: dict[str, str]) -> None:
    assert said["no state disk"].startswith("NODE_PREREQUISITES_MISSING")
    assert "apt-get install no-such-package-one no-such-package-two'" in said["no state disk"]
    assert "dm_integrity" not in said["no state disk"]


def test_a_state_disk_asks_for_its_packages_too(said: dict[str, str]) -> None:
    text = said["a state disk"]
    assert text.startswith("NODE_PREREQUISITES_MISSING")
    assert "apt-get install no-such-package-one no-such-package-two no-such-package-three'" in text


SYSTEM_PYTHON = "/usr/bin/python3"
SPEC = """Name: {name}
Version: 1
Release: 1
Summary: a package of a test
License: GPL-3.0-or-later
BuildArch: noarch
%description
A package of a test.
%files
"""


class RpmMachine:
    """This machine with another view of it: no dpkg-query, an empty database of rpm, one repository for dnf."""

    def __init__(self, directory: Path) -> None:
        self.home, self.programs, self.settings = (directory / name for name in ("home", "programs", "settings"))
        self.database, repository = directory / "database", directory / "repository"
        for one in (self.home, self.programs, self.settings, self.database, repository):
            one.mkdir()
        for program in Path("/usr/bin").iterdir():
            if program.name != "dpkg-query":
                (self.programs / program.name).symlink_to(program)
        (self.home / ".rpmmacros").write_text(f"%_dbpath {self.database}\n", encoding="utf-8")
        (self.settings / "dnf.conf").write_text(
            f"[main]\ncachedir={directory}/cache\npersistdir={directory}/persist\nlogdir={directory}/log\n"
            f"[test]\nname=test\nbaseurl={repository.as_uri()}\ngpgcheck=0\n",
            encoding="utf-8",
        )
        self._fill(repository, "conntrack-tools", "procps-ng")

    def _fill(self, repository: Path, *names: str) -> None:
        places = {"_topdir": self.home / "build", "_rpmdir": repository}
        defined = [word for key, value in places.items() for word in ("--define", f"{key} {value}")]
        for name in names:
            spec = self.home / f"{name}.spec"
            spec.write_text(SPEC.format(name=name), encoding="utf-8")
            subprocess.run(["rpmbuild", "-bb", "--quiet", *defined, spec], check=True, capture_output=True)
        subprocess.run(["createrepo_c", "--quiet", repository], check=True, capture_output=True)

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` in this view of the machine."""
        bind = f'mount --bind {self.settings} /etc/dnf && exec "$@"'
        shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", bind, "sh"]
        environment = {
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_FORCE_COLOR": "0",
            "HOME": str(self.home),
            "PATH": f"{self.programs}:/usr/sbin:/sbin",
        }
        return subprocess.run(
            [*shell, *argv], env=environment, cwd=self.home, capture_output=True, text=True, check=False
        )

    def prepare(self, *packages: str, install: bool) -> str:
        """Run the role for ``packages``, and return the output."""
        tasks = {
            "ansible.builtin.include_role": {"name": "attested.kubernetes.node_prerequisites"},
            "vars": {
                "node_prerequisites_packages": list(packages),
                "node_prerequisites_runtime_packages": [],
                "node_prerequisites_install_packages": install,
                "node_prerequisites_allow_cgroup_v1": True,
                "ansible_package_use": "dnf",
            },
        }
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [tasks]}
        play["vars"] = {"ansible_python_interpreter": SYSTEM_PYTHON}
        (self.home / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
        done = self.run(Path(sys.executable).parent / "ansible-playbook", self.home / "play.yml")
        return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def rpm_machine(tmp_path: Path) -> RpmMachine:
    missing = [name for name in ("createrepo_c", "dnf", "rpm", "rpmbuild", "unshare") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"dnf cannot install here: needs root, and lacks {' '.join(missing) or 'nothing else'}")
    return RpmMachine(tmp_path)


def test_with_rpm_the_packages_have_the_names_of_the_distribution_and_dnf_installs_them(rpm_machine: RpmMachine):
    wanted = "conntrack", "procps"
    told = rpm_machine.prepare(*wanted, install=False)
    assert "NODE_PREREQUISITES_MISSING" in told
    assert "Install them with 'dnf install conntrack-tools procps-ng'" in told

    told = rpm_machine.prepare(*wanted, install=True)
    assert "changed=1" in told
    assert "expected the packages" not in told
    assert rpm_machine.run("rpm", "--query", "conntrack-tools", "procps-ng").returncode == 0
    assert "changed=0" in rpm_machine.prepare(*wanted, install=True)


def test_a_package_that_no_repository_has_is_named(rpm_machine: RpmMachine):
    told = rpm_machine.prepare("conntrack", "no-such-package", install=True)
    assert "NODE_PREREQUISITES_MISSING: expected dnf to install conntrack-tools no-such-package, got: " in told
    assert "failed=1" in told
    assert rpm_machine.run("rpm", "--query", "conntrack-tools").returncode != 0


def test_a_locked_database_is_told(rpm_machine: RpmMachine):
    hold = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.lockf(lock, fcntl.LOCK_EX); print(flush=True); input()"
    )
    (rpm_machine.database / ".rpm.lock").touch()
    with subprocess.Popen(
        [sys.executable, "-c", hold, rpm_machine.database / ".rpm.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        told = rpm_machine.prepare("conntrack", install=True)
        holder.communicate(b"\n")
    assert "NODE_PREREQUISITES_MISSING: expected dnf to install conntrack-tools, got: " in told
    assert "lock" in told.partition("got: ")[2]
