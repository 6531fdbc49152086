# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenes of a lab with virtual machines have in common: how long each took, printed and on record."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.boundaries import commit
from ansible_collections.attested.kubernetes.tests.support.records import RECORDS, SCENES, keep_case

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what became of a scene into the record of this commit."""
    report = yield
    if call.when == "call" and not report.skipped:
        case = {
            "point": f"{item.path.stem.removeprefix('test_')}:{item.name.removeprefix('test_')}",
            "fault": "",
            "outcome": SCENES.good if report.passed else "failed",
            "seconds": round(call.duration, 1),
        }
        keep_case(RECORDS, case, kind=SCENES, commit=commit(), now=datetime.now(UTC))
    return report


@pytest.fixture
def took(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print how long a scene took, beside its name."""
    began = time.monotonic()
    yield
    print(f"{request.node.name}: {time.monotonic() - began:.0f} s")
