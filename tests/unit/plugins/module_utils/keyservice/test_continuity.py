# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A TPM's counters since the last ticket: what may follow what, and under which code the rest is refused."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import check_continuity
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import TpmRecord


def tpm(reset: int = 5, restart: int = 2, clock: int = 1000) -> TpmRecord:
    return TpmRecord(clock=clock, reset_count=reset, restart_count=restart)


@pytest.mark.parametrize(
    ("last", "now", "locked", "rebooted"),
    [
        pytest.param(None, tpm(), False, False, id="the first ticket"),
        pytest.param(None, tpm(), True, False, id="a locked machine whose identity was made anew"),
        pytest.param(tpm(), tpm(clock=1001), False, False, id="the same boot"),
        pytest.param(tpm(), tpm(), False, False, id="the same millisecond"),
        pytest.param(tpm(), tpm(clock=1001), True, False, id="locked in the boot of its ticket"),
        pytest.param(tpm(), tpm(restart=3, clock=1001), True, False, id="suspended and resumed"),
        pytest.param(tpm(), tpm(reset=6, restart=0, clock=2000), False, True, id="rebooted"),
        pytest.param(tpm(), tpm(reset=9, restart=0, clock=10), False, True, id="a power cut took some of its time"),
    ],
)
def test_what_may_follow(last: TpmRecord | None, now: TpmRecord, locked: bool, rebooted: bool) -> None:
    assert check_continuity(last, now, locked=locked) is rebooted


@pytest.mark.parametrize(
    ("now", "locked", "code"),
    [
        pytest.param(tpm(reset=4, restart=9, clock=9999), False, "TPM_ROLLED_BACK", id="fewer resets"),
        pytest.param(tpm(reset=0, restart=0, clock=1), False, "TPM_ROLLED_BACK", id="a TPM that was cleared"),
        pytest.param(tpm(restart=1, clock=1001), False, "TPM_ROLLED_BACK", id="fewer restarts in one reset"),
        pytest.param(tpm(clock=999), False, "TPM_ROLLED_BACK", id="an earlier time in one reset"),
        pytest.param(tpm(restart=3, clock=999), False, "TPM_ROLLED_BACK", id="an earlier time after a resume"),
        pytest.param(tpm(clock=999), True, "TPM_ROLLED_BACK", id="an earlier time of a locked machine"),
        pytest.param(tpm(reset=6, restart=0), True, "NODELOCK_NO_TICKET", id="locked in a boot without a ticket"),
    ],
)
def test_what_may_not(now: TpmRecord, locked: bool, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        check_continuity(tpm(), now, locked=locked)
    assert caught.value.code == code
    assert "expected" in caught.value.message


@pytest.mark.parametrize(
    ("challenged", "now", "code"),
    [
        pytest.param(tpm(), tpm(clock=1500), "API_CONFLICT", id="made after the state at the challenge"),
        pytest.param(tpm(), tpm(), "API_CONFLICT", id="in the same millisecond"),
        pytest.param(tpm(0, 0, 0), tpm(reset=4), "API_CONFLICT", id="a machine that had no evidence before"),
        pytest.param(tpm(), tpm(clock=999), "TPM_ROLLED_BACK", id="earlier than at the challenge"),
        pytest.param(tpm(reset=6), tpm(), "TPM_ROLLED_BACK", id="fewer resets than at the challenge"),
        pytest.param(None, tpm(), "TPM_ROLLED_BACK", id="the state at the challenge was not known"),
    ],
)
def test_evidence_that_was_made_before_the_last_one_is_no_rollback(
    challenged: TpmRecord | None, now: TpmRecord, code: str
) -> None:
    with pytest.raises(AttestedError) as caught:
        check_continuity(tpm(reset=7, clock=2000), now, locked=True, challenged=challenged)
    assert caught.value.code == code
