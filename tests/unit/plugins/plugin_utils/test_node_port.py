# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module on the node answers, as the admin's side understands it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import Challenge, new_challenge
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import AnsibleNodePort, run_module_there
from ansible_collections.attested.kubernetes.tests.support.exchange import NOW, SELECTION, Exchange


def answering(*results: dict[str, Any]) -> Any:
    """Return an ``execute`` that gives ``results`` in turn and records what it was asked."""
    asked: list[tuple[str, dict[str, Any]]] = []
    left = iter(results)

    def execute(module: str, arguments: Any) -> dict[str, Any]:
        asked.append((module, dict(arguments)))
        return next(left)

    execute.asked = asked  # type: ignore[attr-defined]
    return execute


def test_two_calls_carry_purpose_challenge_and_options() -> None:
    exchange = Exchange()
    challenge, _record = new_challenge(exchange.request(), selection=SELECTION, random=SystemRandom(), now=NOW)
    text = base64.b64encode(b"x").decode()
    execute = answering(
        {"challenge_request": text, "node": "w-1"}, {"binding": text, "event_logs": text, "handle": "0f"}
    )
    port = AnsibleNodePort(execute, {"node_config": "/etc/attested/node.yml"})
    assert port.identify(Purpose.INIT) == b"x"
    said = port.answer(Purpose.INIT, challenge)
    assert (said.binding, said.event_logs, said.handle) == (b"x", b"x", "0f")
    sent = execute.asked[1][1]
    assert sent["purpose"] == "init"
    assert sent["node_config"] == "/etc/attested/node.yml"
    assert Challenge.parse(base64.b64decode(sent["challenge"])) == challenge


@pytest.mark.parametrize(
    ("result", "code", "said"),
    [
        pytest.param(
            {"failed": True, "reason": "TPM_BUSY", "msg": "busy", "hint": "wait"},
            "TPM_BUSY",
            "busy",
            id="ours, by its code",
        ),
        pytest.param({"failed": True, "msg": "boom"}, "MODULE_FAILED", "boom", id="a failure without a code"),
        pytest.param(
            {"failed": True, "module_stderr": "no such interpreter", "msg": ""},
            "MODULE_FAILED",
            "no such interpreter",
            id="an interpreter that is not there",
        ),
        pytest.param({"unreachable": True, "msg": "no route"}, "MODULE_FAILED", "no route", id="a node out of reach"),
        pytest.param(
            {"failed": True, "reason": "NO_SUCH_CODE", "msg": "x"}, "MODULE_FAILED", "x", id="a code that is not ours"
        ),
    ],
)
def test_failure_on_the_node_keeps_its_reason(result: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(AttestedError, match=said) as failed:
        run_module_there(answering(result), "attested.kubernetes.attestation_info", {})
    assert failed.value.code == code


def test_hint_of_the_node_is_the_one_that_is_shown() -> None:
    with pytest.raises(AttestedError) as failed:
        run_module_there(answering({"failed": True, "reason": "TPM_BUSY", "msg": "m", "hint": "its own"}), "m", {})
    assert failed.value.hint == "its own"
