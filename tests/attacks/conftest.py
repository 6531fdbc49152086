# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all attacks: those of the component tests (real TPMs) and of the API bed, each started when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.api_bed.conftest import api, bed, machines
from ansible_collections.attested.kubernetes.tests.component.conftest import (
    booted,
    machine,
    manufactured,
    opened,
    policy,
    swtpm,
    swtpms,
    tool,
)
from ansible_collections.attested.kubernetes.tests.support import threats
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
from ansible_collections.attested.kubernetes.tests.support.service_bed import ServiceBed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

__all__ = [
    "api",
    "bed",
    "booted",
    "machine",
    "machines",
    "manufactured",
    "opened",
    "policy",
    "swtpm",
    "swtpms",
    "tool",
]


@pytest.fixture
def exchange() -> Exchange:
    """A machine with a test attester, its policy, and a verifier that agree."""
    return Exchange()


@pytest.fixture
def replica(api: ApiBed, bed: ServiceBed) -> Iterator[ServiceBed]:
    """The services of a second control plane: same cluster, own memory."""
    made = ServiceBed(api, bed.bundle)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many attacks were tried, and by how many tests each."""
    reports = [
        one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, []) if one.when == "call"
    ]
    files = {one.nodeid.partition("::")[0].rpartition("/")[2] for one in reports}
    tried = {name for name in files if name.startswith("test_s")}
    terminalreporter.write_line(
        f"attacks: {len(tried)} tried by {len(reports)} tests in this run; {len(threats.OPEN)} open"
    )
