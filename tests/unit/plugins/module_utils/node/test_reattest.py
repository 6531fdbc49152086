# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a push: the last word, after everything that passes by itself has passed."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.push_record import PushRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.reattest import push_and_keep
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

AWAY = TransportError("expected a service, found none", reason=Reason.PEER_UNREACHABLE)
REFUSED = TransportError("expected the evidence to be taken, got no", reason=Reason.EVIDENCE_REFUSED)


@pytest.fixture
def record(tmp_path, clock):
    return PushRecord(tmp_path / "pushed.json", clock=clock)


def pushed(record, clock, *answers):
    """Push, answered by ``answers`` in turn, the last one again and again; errors are tried again each minute."""
    left = list(answers)

    def ask():
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, TransportError):
            raise found
        return found

    return push_and_keep(ask, record, pause=lambda _error: 60.0, clock=clock)


def test_evidence_that_was_taken_is_kept_as_good(record, clock):
    due = clock.now()
    assert pushed(record, clock, AWAY, ("cp-1:9090", due)) == ("cp-1:9090", due)
    assert record.load().reason == ""


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        pytest.param([REFUSED], "EVIDENCE_REFUSED", id="refused each time"),
        pytest.param([AWAY, REFUSED], "EVIDENCE_REFUSED", id="away, then refused"),
        pytest.param([AWAY], "PEER_UNREACHABLE", id="away all the time"),
    ],
)
def test_the_last_error_is_raised_and_kept(record, clock, answers, reason):
    with pytest.raises(TransportError) as caught:
        pushed(record, clock, *answers)
    assert (caught.value.code, record.load().reason) == (reason, reason)


def test_what_was_refused_once_and_then_taken_is_good(record, clock):
    pushed(record, clock, REFUSED, ("cp-1:9090", clock.now()))
    assert not record.load().is_refused
