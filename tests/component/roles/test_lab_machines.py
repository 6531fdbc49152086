# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container stores of a lab, held against the real podman."""

from __future__ import annotations

import importlib
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.lab import ROLE

if TYPE_CHECKING:
    from pathlib import Path


def test_podman_works_before_any_node_image_was_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first lab of a bare machine makes its network before its image."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    monkeypatch.syspath_prepend(str(ROLE / "files" / "host"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "common", raising=False)
    stores = importlib.import_module("common")
    images = tmp_path / "cache" / "node-images" / "store"
    podman = stores.store(tmp_path / "lab" / "containers", run_directory=tmp_path / "run", more=images)
    try:
        assert podman("ps", "--all", "--quiet") == ""
    finally:
        stores.unmount_below(tmp_path)
