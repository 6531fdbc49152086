# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of two neighbouring versions work together while an upgrade goes from node to node.

Each side must find what it sends and stores in the other one's messages and custom resources, with the same meaning.
The record is that of the last release, or of the first one to come.
"""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.attested.kubernetes.tests.support.compatibility import RECORDED, breaks, current

TICKET, NODE = "message attested.v1.Ticket", "kind NodeIdentity v1alpha1"


@pytest.fixture(scope="module")
def now():
    return current()


def test_all_that_the_release_before_says_is_still_said(now):
    assert breaks(json.loads(RECORDED.read_text(encoding="utf-8")), now) == []


def test_the_record_has_messages_calls_and_kinds():
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert {"IssueJoinTicket", "Challenge", "Reattest"} <= {part for parts in recorded.values() for part in parts}
    assert recorded[TICKET]["field 3"].startswith("node_name, ")
    assert ".spec.role" in recorded[NODE]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            TICKET,
            lambda parts: parts.pop("field 6"),
            "field 6: expected kubernetes_version, label 1, type 9, got nothing",
        ),
        (TICKET, lambda parts: parts.update({"field 6": parts["field 7"]}), "got api_endpoint"),
        ("service attested.v1.Attestation", lambda parts: parts.pop("Reattest"), "Reattest: expected .attested.v1."),
        (NODE, lambda parts: parts.pop(".spec.role"), ".spec.role: expected"),
        (NODE, lambda parts: parts.update({".spec": '{"required": ["new"], "type": "object"}'}), ".spec: expected"),
    ],
)
def test_what_is_gone_or_means_something_else_is_named(now, name, change, said):
    later = copy.deepcopy(now)
    change(later[name])
    (problem,) = breaks(now, later)
    assert problem.startswith(f"{name}, ")
    assert said in problem


def test_what_is_new_breaks_nothing(now):
    later = copy.deepcopy(now)
    later[TICKET]["field 90"] = "colour, label 1, type 9"
    later[NODE][".spec.colour"] = '{"required": [], "type": "string"}'
    later["message attested.v1.New"] = {}
    assert breaks(now, later) == []
