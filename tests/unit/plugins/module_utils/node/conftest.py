# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: a machine in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.node import renew
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import RunRecord
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import clock, locked, machine, make_pair, programs
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import (
    api,
    member_parts,
    member_ticket,
    parts,
    ticket,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "api",
    "clock",
    "locked",
    "machine",
    "make_pair",
    "member_parts",
    "member_ticket",
    "parts",
    "programs",
    "ticket",
]


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put the records of runs into the directory of the test, not into /run/attested of this machine."""
    directory = tmp_path / "run-attested"
    monkeypatch.setattr(RunRecord.__init__, "__defaults__", (directory,))
    monkeypatch.setattr(renew, "DIRECTORY", directory / "renewal")
    return directory
