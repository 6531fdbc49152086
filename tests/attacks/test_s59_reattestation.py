# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S59: a node that got its ticket honestly goes on as another machine or boot, and only pushes its evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S59",
    title="Another machine or boot behind good re-attestations",
    case="",
    bed="bytes",
    stops=(
        ("keyservice/reattest.py", "AK_NOT_PINNED"),
        ("keyservice/reattest.py", "TPM_ROLLED_BACK"),
        ("keyservice/reattest.py", "NODELOCK_NO_TICKET"),
    ),
)


def take_another_key(bed: Bed) -> None:
    other = SoftTpm()
    bed.tpm.ak, bed.tpm._ak_key = other.ak, other._ak_key


def put_back(bed: Bed) -> None:
    bed.tpm.clock_info = replace(bed.tpm.clock_info, reset_count=bed.tpm.clock_info.reset_count - 1)


def turn_back_time(bed: Bed) -> None:
    bed.tpm.clock_info = replace(bed.tpm.clock_info, clock=0)


def reboot_and_lock(bed: Bed) -> None:
    bed.tpm.reset()
    bed.lock()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(take_another_key, "AK_NOT_PINNED", id="another attestation key of the same TPM"),
        pytest.param(put_back, "TPM_ROLLED_BACK", id="a TPM whose older state was put back"),
        pytest.param(turn_back_time, "TPM_ROLLED_BACK", id="a TPM whose time went back"),
        pytest.param(reboot_and_lock, "NODELOCK_NO_TICKET", id="locked by itself after a reboot"),
    ],
)
def test_what_would_get_no_ticket_is_no_good_evidence_either(change: Callable[[Bed], None], code: str) -> None:
    """Each quote is true, signed and of an accepted boot: only what the last evidence said tells them apart."""
    bed = Bed()
    bed.release()
    bed.lock()
    reattester = bed.reattester()
    assert reattester.reattest(*bed.push(), note=bed.notes.update).node_name == "w-1"
    before, writes = bed.status(), bed.gateway.writes
    change(bed)
    assert code_of(lambda: reattester.reattest(*bed.push(), note=bed.notes.update)) == code
    assert (bed.status(), bed.gateway.writes) == (before, writes)
