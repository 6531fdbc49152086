# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node stands by what it proved last, and what that is worth when it renews."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import EvidenceRefusal, IdentityStatus
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import parse_objects
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.standing import (
    CONDITION,
    OVERDUE_AFTER,
    Standing,
    judge_standing,
    require_good_standing,
    shown_time,
)

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
SECOND = dt.timedelta(seconds=1)
REFUSAL = EvidenceRefusal("PCR_MISMATCH", NOW - HOUR)
EK = "ab" * 32


@pytest.mark.parametrize(
    ("status", "known_since", "standing", "since"),
    [
        pytest.param({"attested_at": NOW - HOUR}, NOW, Standing.GOOD, NOW - HOUR, id="good evidence of an hour ago"),
        pytest.param(
            {"attested_at": NOW - 3 * HOUR + SECOND}, NOW, Standing.GOOD, NOW - 3 * HOUR + SECOND, id="just in time"
        ),
        pytest.param({"attested_at": NOW - 3 * HOUR}, NOW, Standing.OVERDUE, NOW, id="three hours to the second"),
        pytest.param({}, NOW - HOUR, Standing.NEW, NOW - HOUR, id="a Node of an hour that proved nothing yet"),
        pytest.param({}, NOW - 4 * HOUR, Standing.OVERDUE, NOW - HOUR, id="a Node of four hours that proved nothing"),
        pytest.param(
            {"attested_at": NOW - HOUR, "refusal": REFUSAL}, NOW, Standing.FAILED, NOW - HOUR, id="refused after good"
        ),
        pytest.param(
            {"attested_at": NOW - 9 * HOUR, "refusal": REFUSAL}, NOW, Standing.FAILED, NOW - HOUR, id="and overdue too"
        ),
        pytest.param(
            {"refusal": EvidenceRefusal("PCR_MISMATCH")}, NOW, Standing.FAILED, NOW, id="refused nobody knows when"
        ),
        pytest.param(
            {"attested_at": NOW + 5 * dt.timedelta(minutes=1)},
            NOW,
            Standing.GOOD,
            NOW + 5 * dt.timedelta(minutes=1),
            id="a clock that is a little ahead",
        ),
        pytest.param(
            {"attested_at": NOW + HOUR}, NOW - 4 * HOUR, Standing.OVERDUE, NOW - HOUR, id="evidence of the future"
        ),
        pytest.param(
            {"attested_at": NOW + 5 * dt.timedelta(minutes=1) + SECOND},
            NOW - 4 * HOUR,
            Standing.OVERDUE,
            NOW - HOUR,
            id="of a second more than clocks may differ",
        ),
    ],
)
def test_how_a_node_stands(status: dict[str, Any], known_since: dt.datetime, standing: Standing, since: Any) -> None:
    judgement = judge_standing(IdentityStatus(**status), known_since=known_since, now=NOW)
    assert (judgement.standing, judgement.since) == (standing, since)
    assert judgement.code == ("PCR_MISMATCH" if standing is Standing.FAILED else "")


@pytest.mark.parametrize(
    ("overdue_from", "refusal", "standing"),
    [
        pytest.param(NOW + SECOND, None, Standing.UNHEARD, id="while nobody could be heard nobody is overdue"),
        pytest.param(NOW, None, Standing.OVERDUE, id="from then on it is"),
        pytest.param(NOW + SECOND, REFUSAL, Standing.FAILED, id="what was refused was heard"),
    ],
)
def test_after_an_outage(overdue_from: dt.datetime, refusal: Any, standing: Standing) -> None:
    status = IdentityStatus(attested_at=NOW - 4 * HOUR, refusal=refusal)
    assert judge_standing(status, known_since=NOW, now=NOW, overdue_from=overdue_from).standing is standing


def test_the_period_is_the_callers() -> None:
    assert OVERDUE_AFTER == 3 * HOUR
    status = IdentityStatus(attested_at=NOW - HOUR)
    assert judge_standing(status, known_since=NOW, now=NOW, overdue_after=HOUR).standing is Standing.OVERDUE


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param({"attested_at": NOW - HOUR}, "", id="good evidence of an hour ago"),
        pytest.param({}, "", id="none yet: there is nothing to renew"),
        pytest.param({"attested_at": NOW, "refusal": REFUSAL}, "REATTESTATION_FAILED", id="the last was refused"),
        pytest.param({"attested_at": NOW - 3 * HOUR}, "REATTESTATION_OVERDUE", id="the last is too old"),
        pytest.param({"attested_at": NOW + HOUR}, "REATTESTATION_OVERDUE", id="the last is of the future"),
    ],
)
def test_who_may_renew(status: dict[str, Any], code: str) -> None:
    assert refused(IdentityStatus(**status)) == code


def refused(status: IdentityStatus) -> str:
    try:
        require_good_standing(status, now=NOW)
    except AttestedError as error:
        return error.code
    return ""


def parsed(status: dict[str, Any]) -> IdentityStatus:
    document = {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{EK[:20]}"},
        "spec": {"ekSha256": EK, "nodeName": "w-1", "role": "worker", "admission": "Approved"},
        "status": status,
    }
    return parse_objects([("x", document)]).identities[0].status


@pytest.mark.parametrize(
    ("status", "attested_at", "refusal"),
    [
        pytest.param({"lastAttestation": {"time": shown_time(NOW)}}, NOW, None, id="a time"),
        pytest.param({"lastAttestation": {"time": "soon"}}, None, None, id="a word is no evidence"),
        pytest.param({"lastAttestation": {}}, None, None, id="nor is nothing"),
        pytest.param(
            {"lastRefusal": {"time": shown_time(NOW), "reason": "PCR_MISMATCH"}},
            None,
            EvidenceRefusal("PCR_MISMATCH", NOW),
            id="a refusal",
        ),
        pytest.param({"lastRefusal": {}}, None, EvidenceRefusal(""), id="a refusal without words is one"),
        pytest.param({"lastRefusal": "yes"}, None, EvidenceRefusal(""), id="also one that cannot be read"),
        pytest.param({"lastRefusal": None}, None, None, id="one that was taken back"),
    ],
)
def test_what_an_object_says(status: dict[str, Any], attested_at: Any, refusal: Any) -> None:
    found = parsed(status)
    assert (found.attested_at, found.refusal) == (attested_at, refusal)


def test_a_time_is_shown_to_the_second_in_utc() -> None:
    assert shown_time(NOW.astimezone(dt.timezone(HOUR))) == "2026-11-21T12:00:00Z"
    assert shown_time(None) == "never"


def test_operators_wait_for_the_condition_by_its_name() -> None:
    """Their ``kubectl wait --for=condition=Attested`` is outside of this tree."""
    assert CONDITION == "Attested"
