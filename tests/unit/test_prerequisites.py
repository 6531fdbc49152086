# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make lab` and `make test` do about packages that are missing; apt-get and id are programs of the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = ROOT / "tests" / "support" / "prerequisites"


class Host:
    """A search path with the programs that the script runs and nothing that a package brings."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.calls = directory / "calls"
        self.bin.mkdir()
        for name in ("bash", "cat", "env", "python3", "sed"):
            (self.bin / name).symlink_to(shutil.which(name) or "")
        said = "(Reading database ... 1 files)\nUnpacking git (1) ...\nSetting up git (1) ..."
        self.write("apt-get", f'echo "$*" >> {self.calls}; echo "{said}"; echo "E: no" >&2; exit "${{APT_CODE:-0}}"')

    def write(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (self.bin / name).chmod(0o755)

    def run(self, *words: str, uid: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        self.write("id", f"echo {uid}")
        environment = {key: value for key, value in os.environ.items() if key != "NO_INSTALL"}
        environment |= {"PATH": str(self.bin), **more}
        return subprocess.run([SCRIPT, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_root_has_missing_packages_listed_and_installed(host: Host) -> None:
    done = host.run("check")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("missing: git\ninstall: apt-get install")
    words = "install --yes --no-install-recommends git -qq -o Dpkg::Use-Pty=0"
    assert host.calls.read_text().splitlines() == ["update -qq", words]
    assert done.stderr.splitlines()[-2:] == ["Setting up git (1) ...", "E: no"]
    assert done.stderr.count("Unpacking") == 1  # of `update`, whose output is its own


@pytest.mark.parametrize(
    ("uid", "environment"),
    [pytest.param(1000, {}, id="without root"), pytest.param(0, {"NO_INSTALL": "1"}, id="with NO_INSTALL=1")],
)
def test_the_one_command_is_printed(host: Host, uid: int, environment: dict[str, str]) -> None:
    done = host.run("check", uid=uid, **environment)
    assert done.returncode == 1
    assert done.stderr == "missing: git\nrun:     sudo apt-get install --yes --no-install-recommends git\n"
    assert not host.calls.exists()


def test_an_installation_that_fails_ends_the_run(host: Host) -> None:
    assert host.run("check", APT_CODE="100").returncode == 100


def test_nothing_is_done_where_nothing_is_missing(host: Host) -> None:
    host.write("git", "")
    done = host.run("check", uid=1000)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_packages_of_a_purpose_are_printed(host: Host) -> None:
    done = host.run("check", "--packages", uid=1000)
    assert done.stdout.split() == ["git", "python3", "python3-venv"]
    assert not host.calls.exists()
