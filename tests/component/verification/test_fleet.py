# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole fleet asked over real sockets: every node gets a finding, whatever becomes of it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Outcome
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import (
    Patience,
    examine,
    examine_fleet,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, question, running_node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

SOON = Patience(parallel=4, seconds=0.0)
PLENTY = {"questions_per_second": 1000.0, "question_burst": 1000, "quotes_per_second": 1000.0, "quote_burst": 1000}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody listens and nobody else will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def policy_of(nodes: dict[str, SoftNode]) -> SitePolicy:
    identities = [identity_of(node.tpm.ek, name) for name, node in nodes.items()]
    return SitePolicy(profiles=[learned(boots.load("deb13-base"))], identities=identities)


async def test_every_node_gets_a_finding_and_is_told_once(closed_port: int) -> None:
    nodes = {
        "good": SoftNode(),
        "other-boot": SoftNode(boot=boots.load("deb13-cmdline")),
        "open": SoftNode(locked_to=None),
    }
    told: list[str] = []
    async with AsyncExitStack() as running:
        endpoints = {
            name: (await running.enter_async_context(running_node(node.attester, node.facts, **PLENTY))).endpoint
            for name, node in nodes.items()
        }
        endpoints["away"] = f"127.0.0.1:{closed_port}"
        found = await examine_fleet(
            endpoints, question(policy_of(nodes)), patience=SOON, report=lambda one: told.append(one.node)
        )
    assert {one.node: (one.outcome, one.trouble.reason if one.trouble else None) for one in found} == {
        "good": (Outcome.VERIFIED, None),
        "other-boot": (Outcome.REFUSED, "PCR_MISMATCH"),
        "open": (Outcome.REFUSED, "NODELOCK_OPEN"),
        "away": (Outcome.UNANSWERED, "PEER_UNREACHABLE"),
    }
    assert sorted(told) == sorted(endpoints)
    refused = next(one for one in found if one.node == "other-boot")
    assert refused.registers
    assert refused.trouble is not None
    assert refused.trouble.deviations


async def test_a_node_that_asks_for_time_gets_it() -> None:
    """A question every two seconds, and a verification is two: who asks each second never gets to the second one."""
    node = SoftNode()
    asked = question(policy_of({"w-1": node}))
    async with running_node(node.attester, node.facts, question_burst=2, questions_per_second=0.5) as bed:
        first, impatient, patient = [
            await examine("w-1", bed.endpoint, asked, seconds=seconds) for seconds in (0.0, 0.0, 30.0)
        ]
    assert [one.outcome for one in (first, impatient, patient)] == [
        Outcome.VERIFIED,
        Outcome.UNANSWERED,
        Outcome.VERIFIED,
    ]
    assert impatient.trouble is not None
    assert impatient.trouble.reason == "VERIFICATION_LATER"


async def test_a_node_that_comes_late_is_waited_for() -> None:
    """Its port refuses connections for a while, as after a reboot; a forwarder then opens it."""
    node = SoftNode()
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{held.getsockname()[1]}"
        async with running_node(node.attester, node.facts, **PLENTY) as bed:
            asked = question(policy_of({"w-1": node}))
            asking = asyncio.create_task(examine("w-1", endpoint, asked, seconds=60))
            await asyncio.sleep(0.5)
            assert not asking.done()
            server = await asyncio.start_server(forwarder(bed.port), sock=held)
            found = await asking
            server.close()
    assert (found.outcome, found.trouble) == (Outcome.VERIFIED, None)


async def test_a_node_that_says_no_is_not_asked_again() -> None:
    """Patience is for what time may help; a refusal is told at once."""
    node = SoftNode(locked_to=None)
    async with running_node(node.attester, node.facts, **PLENTY) as bed:
        found = await examine("w-1", bed.endpoint, question(policy_of({"w-1": node})), seconds=600)
        assert sum(line["event"] == "witness_testify" for line in bed.lines()) == 1
    assert found.outcome is Outcome.REFUSED


def forwarder(port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Return what carries a connection to ``port``, as the lab's forwarder does."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    return forward


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until the end."""
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
    writer.close()
