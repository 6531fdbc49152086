# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control groups of a lab are removed, also with a process in them that was killed while it was frozen."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE

NAME = "attested-frozen-test"
CGROUPS = Path("/sys/fs/cgroup")
VERSION_2 = (CGROUPS / "cgroup.controllers").exists()
GROUP = CGROUPS / ("" if VERSION_2 else "freezer") / NAME
STATE, FROZEN = ("cgroup.freeze", "1") if VERSION_2 else ("freezer.state", "FROZEN")


def test_a_frozen_process_that_was_killed_does_not_keep_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.access(GROUP.parent, os.W_OK):
        pytest.skip(f"{GROUP.parent} cannot be written: no control groups of our own on this host")
    monkeypatch.syspath_prepend(str(ROLE / "files" / "host"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    host = importlib.import_module("host")
    inner = GROUP / "pod"
    inner.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "600"])
    try:
        (inner / "cgroup.procs").write_text(str(process.pid))
        (inner / STATE).write_text(FROZEN)
        process.kill()
        with pytest.raises(OSError, match="busy"):
            inner.rmdir()
        host.remove_groups(SimpleNamespace(name=NAME))
        assert not GROUP.exists()
    finally:
        if (inner / STATE).exists():
            host.thaw(SimpleNamespace(name=NAME))
        process.kill()
        process.wait()
