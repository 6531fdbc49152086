# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of log lines says what the code writes: every call, and every line that a test of this run sees."""

from __future__ import annotations

import functools
import io
import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Reloader
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import rpc
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services import machine_socket
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.log_schema import (
    UTILS,
    faults,
    require,
    require_none_wrong,
    schema,
    written_in,
)
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from typing import Any

EVENTS = schema()["$defs"]
CALL = {
    "time": "2026-11-21T12:00:00+00:00",
    "event": "call",
    "method": "/join.API/IssueJoinTicket",
    "correlation_id": "0a",
    "outcome": "refused",
    "reason": "PCR_MISMATCH",
    "detail": "expected another value",
    "seconds": 0.5,
}
SCHEMAS = [rpc._SCHEMA, machine_socket._WITNESS, machine_socket._INIT, machine_socket._RECOVERY]
OF_CONNECTIONS = {"connection_broken", "connection_failed", "peer_rejected"}
"""Which event it is, `Listener._note` is told."""


@functools.cache
def written() -> dict[str, list[tuple[str, frozenset[str], bool]]]:
    """Return where each event is written: file, fields, whether more fields may come."""
    found: dict[str, list[tuple[str, frozenset[str], bool]]] = {}
    for path in sorted(UTILS.rglob("*.py")):
        for event, fields, more in written_in(path):
            found.setdefault(event, []).append((path.name, fields, more))
    return found


def answered() -> set[str]:
    """Return the events of the questions that are asked over unix sockets."""
    return {
        f"{schema.name}_{schema.titles.get(kind, kind)}"
        for schema in SCHEMAS
        for kind in [
            *(one.name for one in message_class(schema.request).DESCRIPTOR.oneofs_by_name[schema.question].fields),
            None,
        ]
        if kind not in schema.unlogged
    }


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema())
    assert schema()["properties"]["event"]["enum"] == list(EVENTS) == sorted(EVENTS)
    assert [one["if"]["properties"]["event"]["const"] for one in schema()["allOf"]] == list(EVENTS)
    assert [one["then"]["$ref"] for one in schema()["allOf"]] == [f"#/$defs/{name}" for name in EVENTS]


def test_every_event_of_the_code_is_in_the_schema_and_no_other() -> None:
    assert set(written()) | answered() | OF_CONNECTIONS == set(EVENTS)


def test_every_field_is_described_and_used() -> None:
    used = {name for event in EVENTS.values() for name in event["propertyNames"]["enum"]}
    assert used == set(schema()["properties"])
    assert all(set(event["required"]) <= set(event["propertyNames"]["enum"]) for event in EVENTS.values())


@pytest.mark.parametrize("event", sorted(written()))
def test_a_call_writes_the_fields_of_the_schema(event: str) -> None:
    names, required = set(EVENTS[event]["propertyNames"]["enum"]), set(EVENTS[event]["required"])
    for file, fields, more in written()[event]:
        assert fields <= names, file
        assert more or required <= fields, file


def test_every_program_of_the_schema_is_a_unit() -> None:
    programs = {name for event in EVENTS.values() for name in event["x-programs"]}
    units = {path.name for path in ROOT.glob("**/templates/*.service.j2")}
    assert {f"attested-{name}.service.j2" for name in programs} <= units


def test_a_line_of_the_schema_is_taken() -> None:
    assert faults(CALL) == []
    assert list(Draft202012Validator(schema()).iter_errors(CALL)) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"event": "made_up"}, id="an unknown event"),
        pytest.param({"outcome": "perhaps"}, id="an unknown outcome"),
        pytest.param({"reason": "because it is so"}, id="a reason that is no code"),
        pytest.param({"seconds": "long"}, id="a text for a number"),
        pytest.param({"secret": "x"}, id="a field that this event does not have"),
        pytest.param({"ek": "0" * 64}, id="a field of another event"),
        pytest.param({"method": None}, id="nothing for a text"),
    ],
)
def test_another_line_is_refused(change: dict[str, Any]) -> None:
    line = {**CALL, **change}
    assert faults(line)
    assert list(Draft202012Validator(schema()).iter_errors(line))


@pytest.mark.parametrize("name", ["time", "method", "outcome"])
def test_a_line_without_a_required_field_is_refused(name: str) -> None:
    line = {key: value for key, value in CALL.items() if key != name}
    assert faults(line)
    with pytest.raises(AssertionError, match="log.schema.json"):
        require([line])


def test_each_line_that_code_of_ours_writes_in_a_test_is_checked() -> None:
    """A reloader writes its lines itself; the line of this test is nobody's."""
    stream = io.StringIO()
    log = open_log(stream=stream, environ={})
    Reloader(lambda: 1, lambda _config: None, log=log).reload()
    log.event("of_a_test", anything=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [faults(line) == [] for line in lines] == [True, False]
    require_none_wrong()
    broken: Any = Reloader(lambda: 1, lambda _config: None, log=log)
    broken.generation = 1.5
    broken.reload()
    with pytest.raises(AssertionError, match=r"2\.5 is not of type 'integer'"):
        require_none_wrong()
    require_none_wrong()
