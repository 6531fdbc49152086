# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose question to the API is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed


@pytest.fixture
def bed() -> Bed:
    return Bed()


def met(bed: Bed, ek: str, times: int) -> int:
    """Return how often of ``times`` the API may be asked."""
    granted = 0
    for _unused in range(times):
        try:
            bed.releaser.strangers.take(ek, source="192.0.2.7")
        except Refusal as error:
            assert error.code == "IDENTITY_UNKNOWN_RATE"
        else:
            granted += 1
    return granted


def test_a_key_that_memory_knows_is_not_counted(bed: Bed) -> None:
    bed.watch()
    assert met(bed, bed.identity.ek_sha256, 100) == 100
    assert met(bed, "9" * 64, 100) == 16


def test_a_machine_that_waits_is_counted(bed: Bed) -> None:
    """A stranger can let any number wait."""
    bed.gateway.apply(render_identity(replace(bed.identity, admission=Admission.PENDING)))
    bed.watch()
    assert met(bed, bed.identity.ek_sha256, 100) == 16


@pytest.mark.parametrize("admission", [Admission.REFUSED, Admission.REVOKED])
def test_a_machine_that_was_decided_about_is_not(bed: Bed, admission: Admission) -> None:
    bed.gateway.apply(render_identity(replace(bed.identity, admission=admission)))
    bed.watch()
    assert met(bed, bed.identity.ek_sha256, 100) == 100


def test_while_nothing_is_watched_nobody_is_counted(bed: Bed) -> None:
    """All would be unknown."""
    assert met(bed, "9" * 64, 100) == 100


def test_all_together_have_a_rate(bed: Bed) -> None:
    """With time more may be asked."""
    bed.watch()
    for number in range(64):
        bed.releaser.strangers.take("9" * 64, source=f"192.0.2.{number}")
    assert code_of(lambda: bed.releaser.strangers.take("9" * 64, source="198.51.100.1")) == "IDENTITY_UNKNOWN_RATE"
    bed.clock.sleep(0.2)
    bed.releaser.strangers.take("9" * 64, source="198.51.100.2")
