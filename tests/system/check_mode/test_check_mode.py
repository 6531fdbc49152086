# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode names the very changes that the run makes right after it: by task and host, for a cluster's life.

The tests are in the order of one lab's life and share it; which playbooks, and which are left out, says `foreseen.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.foreseen import CHANGES, LIFE, changes_in, compared, settings
from ansible_collections.attested.kubernetes.tests.support.road import road_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.foreseen import Changes
    from ansible_collections.attested.kubernetes.tests.support.road import Road

    Told = Callable[..., Changes]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """Machines and the skeleton of their site: everything else is a playbook of the admin's."""
    with road_through(of="attested-check-mode:127.88.0", instead="ATTESTED_CHECK_MODE_LAB") as one:
        yield one


@pytest.fixture
def told(road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Run a playbook that has to succeed, and return what it says that it changed."""

    def run(*words: str) -> Changes:
        file = tmp_path / f"changes-{len(list(tmp_path.iterdir()))}"
        for name, value in settings(file).items():
            monkeypatch.setenv(name, value)
        road.play(*words)
        return changes_in(file)

    return run


@pytest.mark.parametrize("words", LIFE, ids=[f"{number}-{one[0]}" for number, one in enumerate(LIFE)])
def test_check_mode_names_what_the_run_changes(told: Told, words: tuple[str, ...]) -> None:
    foreseen, done = (compared(words[0], told(*words, *more)) for more in (("--check", "--diff"), ()))
    assert foreseen == done
    assert done or words[0] not in CHANGES
