# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/audit.md names every event that a key service records, and none that it does not."""

from __future__ import annotations

import ast
import re

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.tests.support import house

OF_NO_DECISION = {"health"}
RECORDING = {"append", "append_urgent", "decided"}
OF_NO_CALL = {"unknown"}
"""A message of the socket that is none of the calls, which `KeyService` refuses and records."""


def events_of_calls():
    """Return the calls of the socket that are decided, by which their records are named."""
    calls = message_class(REQUEST).DESCRIPTOR.oneofs_by_name["call"].fields
    return {one.name for one in calls} - OF_NO_DECISION | OF_NO_CALL


def events_beside_them():
    """Return the events that the key service records by itself, by name: what happened, and decisions of no call."""
    found = set()
    for path in (house.UTILS / "keyservice").glob("*.py"):
        for node in ast.walk(house.tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RECORDING:
                found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
            if isinstance(node, ast.Dict):  # a record that is written beside another one
                said = dict(zip((getattr(key, "value", "") for key in node.keys), node.values, strict=True))
                found |= {one.value for one in [said.get("event")] if isinstance(one, ast.Constant)}
    return found


def test_the_table_of_events_is_complete():
    page = (house.ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    table = page.partition("| event | when |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == events_of_calls() | events_beside_them()
