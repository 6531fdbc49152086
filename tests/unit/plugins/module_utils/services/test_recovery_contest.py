# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One claim on the disk of this boot: the first right key wins, the other one stops before it has done anything."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import Contender, Contest
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of


def claim(contest, by=Contender.REJOIN):
    with contest.claim(by):
        pass


def test_whoever_claims_first_has_won():
    contest = Contest()
    assert not contest.wait(0)
    claim(contest, Contender.RECOVERY)
    assert (contest.winner, contest.wait(0)) == (Contender.RECOVERY, True)
    assert code_of(lambda: claim(contest)) == "RECOVERY_RACE_LOST"
    assert code_of(contest.require_open) == "RECOVERY_RACE_LOST"


def test_while_one_opens_the_other_is_sent_away_and_not_kept_waiting():
    contest = Contest()
    with contest.claim(Contender.REJOIN):
        assert contest.winner is None
        with pytest.raises(Refusal, match="rejoin is opening it") as caught:
            claim(contest, Contender.RECOVERY)
        assert caught.value.code == "RECOVERY_RACE_LOST"
    with pytest.raises(Refusal, match="rejoin has opened it"):
        claim(contest, Contender.RECOVERY)


def fail(contest):
    with contest.claim(Contender.REJOIN):
        raise ValueError("the disk is busy")


def test_who_fails_leaves_the_claim_to_the_other():
    contest = Contest()
    with pytest.raises(ValueError, match="busy"):
        fail(contest)
    contest.require_open()
    claim(contest, Contender.RECOVERY)
    assert contest.winner is Contender.RECOVERY
