# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of a recovery: what a person reads of many nodes."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import (
    Outcome,
    State,
    needs_a_person,
    table,
)


def outcome(node, reason=None, **changes):
    known = {"endpoint": f"{node}:9999", "role": "worker", "seconds": 1.25, "reason": reason, "hint": "Do this."}
    return Outcome(node=node, **{**known, **changes})


GOOD = outcome("cp-1", role="control-plane")
READY = outcome("cp-2", role="control-plane", sent=False)
FIRST = outcome("w-1", Reason.RECOVERY_RACE_LOST)
SILENT = outcome("w-2", Reason.PEER_UNREACHABLE)
WRONG = outcome("w-3", Reason.RECOVERY_KEY_WRONG)


def test_each_node_has_its_line_in_the_order_given():
    assert table([GOOD, FIRST, SILENT, WRONG]) == (
        "node  role           result             seconds  code                what to do",
        "cp-1  control-plane  recovered          1.2      -                   -",
        "w-1   worker         another was first  1.2      RECOVERY_RACE_LOST  -",
        "w-2   worker         does not answer    1.2      PEER_UNREACHABLE    Do this.",
        "w-3   worker         failed             1.2      RECOVERY_KEY_WRONG  Do this.",
        "4 nodes: 1 recovered, 1 another was first, 1 does not answer, 1 failed",
    )


def test_without_nodes_it_says_so():
    assert table([])[-1] == "0 nodes"


def test_a_person_is_needed_where_a_node_stays_locked():
    assert [one.state for one in (GOOD, READY, FIRST, SILENT, WRONG)] == list(State)
    assert not needs_a_person([GOOD, FIRST, READY])
    assert needs_a_person([GOOD, SILENT])
    assert needs_a_person([WRONG])
