# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fuzz target reads its seeds and what once was a bug: an object or an `AttestedError`, nothing else."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.tests.support.house import COLLECTION, ROOT

FOLDER = ROOT / "tests" / "fuzz"
NAMES = [path.stem for path in sorted(FOLDER.glob("fuzz_*.py"))]


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_kept_inputs(name: str) -> None:
    target: Any = importlib.import_module(f"{COLLECTION}.tests.fuzz.{name}")
    seeds = target.seeds()
    assert seeds
    accepted = 0
    for data in seeds:
        try:
            target.one_input(data)
            accepted += 1
        except AttestedError:
            continue
    assert accepted, "no seed is good: mutations of it would stop at the first check"
    for path in sorted((FOLDER / "corpus" / name.removeprefix("fuzz_")).glob("*")):
        with pytest.raises(AttestedError):
            target.one_input(path.read_bytes())
