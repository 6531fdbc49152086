# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node after node gets the secret, and who asks again is told; time is a number here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.node import (
    Patience,
    SeenNode,
    recover_nodes,
    require_new,
)
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

if TYPE_CHECKING:
    from collections.abc import Sequence


class Net:
    """Answers one attempt after the other: a node by its name, or a reason; then nobody, for ever."""

    def __init__(self, *script: str | Reason) -> None:
        self.script = list(script)
        self.sent: list[str] = []
        self.clock = SteppingClock()

    async def push(self, given: frozenset[bytes]) -> SeenNode:
        step = self.script.pop(0) if self.script else Reason.PEER_UNREACHABLE
        if isinstance(step, Reason):
            raise TransportError("nobody", reason=step, retryable=step is Reason.PEER_UNREACHABLE)
        node = SeenNode(ak_name=step.encode(), pcrs={}, warnings=())
        require_new(node, given)
        self.sent.append(step)
        return node

    async def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    async def run(self, *, watch: float = 30.0) -> Sequence[str]:
        nodes = await recover_nodes(
            self.push,
            patience=Patience(watch_seconds=watch),
            clock=self.clock,
            sleep=self.sleep,
            report=lambda _node: None,
        )
        return [node.ak_name.decode() for node in nodes]


NOBODY = Reason.PEER_UNREACHABLE


async def test_it_ends_when_nobody_has_asked_for_a_while() -> None:
    net = Net("a", NOBODY, "b", NOBODY, NOBODY)
    assert await net.run() == ["a", "b"]


async def test_who_asks_again_is_not_given_it_again() -> None:
    net = Net("a", NOBODY, NOBODY, "a")
    with pytest.raises(Refusal) as caught:
        await net.run()
    assert (caught.value.code, net.sent) == ("RESCUE_ASKS_AGAIN", ["a"])


async def test_without_watching_it_ends_at_the_first_silence() -> None:
    net = Net("a", NOBODY, "a")
    assert await net.run(watch=0) == ["a"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param([], "PEER_UNREACHABLE", id="nobody asked at all"),
        pytest.param([Reason.RESCUE_CALL_FAILED], "RESCUE_CALL_FAILED", id="the first one breaks off"),
        pytest.param(["a", Reason.EVIDENCE_MISSING], "EVIDENCE_MISSING", id="the second one proves nothing"),
    ],
)
async def test_what_waiting_does_not_help_ends_it(script: list[str | Reason], code: str) -> None:
    with pytest.raises(TransportError) as caught:
        await Net(*script).run()
    assert caught.value.code == code
