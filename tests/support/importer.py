# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Galaxy's importer in a separate virtual environment: its findings about the collection.

Its pinned packages (attrs, flake8, ansible-lint) would conflict with the environment of the tests. Its ansible-lint is
skipped, because the stage `lint` is stricter; its ansible-test needs containers, see `sanity`.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_DONE = "Importer processing completed successfully"
_SETTINGS = {
    "GALAXY_IMPORTER_CHECK_REQUIRED_TAGS": "true",
    "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "false",
    "GALAXY_IMPORTER_RUN_ANSIBLE_TEST": "false",
}


def requirement() -> str:
    """Return the requirement of the importer in `pyproject.toml`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pinned,) = project["optional-dependencies"]["galaxy"]
    return str(pinned)


def interpreter(cache: Path) -> Path:
    """Return a Python with the importer; created at first use, and again if incomplete."""
    directory = cache / requirement().replace("==", "-")
    python, marker = directory / "bin" / "python", directory / "complete"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement()]
            subprocess.run(pip, check=True)
            marker.touch()
    return python


def import_collection(python: Path, archive: Path, scratch: Path) -> str:
    """Run the importer for a built collection and return its output; its files stay in ``scratch``."""
    # this environment has no copy of the collection, so the importer reads only the archive
    environment = {
        "PATH": f"{python.parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        **_SETTINGS,
    }
    words = [str(python), "-m", "galaxy_importer.main", str(archive)]
    done = subprocess.run(
        words, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.stdout.decode(errors="replace")


def complaints(said: str, modules: list[str]) -> list[str]:
    """Return all warnings and errors in the output, modules that were not read, and a failure."""
    read = set(re.findall(r"^Loading module (\w+)$", said, re.MULTILINE))
    found = re.findall(r"^(?:WARNING|ERROR|CRITICAL): .*$", said, re.MULTILINE)
    found += [f"module {name}: not read" for name in modules if name not in read]
    if _DONE not in said:
        found.append(f"expected the end of an import, got: {said[-2000:]}")
    return found
