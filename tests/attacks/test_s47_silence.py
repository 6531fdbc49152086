# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S47: strangers with a TPM of software who get in and then hold what others need: streams, seats, calls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services import (
    init_service,
    recovery_service,
    verification_service,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import ServerLimits
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import Limits
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    ECHO,
    REFUSE,
    Bed,
    HashIssuer,
    running_bed,
    settled,
)
from ansible_collections.attested.kubernetes.tests.support.strangers import (
    STREAMS,
    Kind,
    Stranger,
    Target,
    begun_call,
    hold_one,
    preface,
    whole_call,
)
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

THREAT = Threat(
    id="S47",
    title="Silence that holds the join service",
    case="CVE-2023-44487",
    bed="sockets",
    stops=(
        ("transport/grpc_server.py", "REQUEST_INCOMPLETE"),
        ("transport/relay.py", "CONNECTION_UNPROVEN"),
        ("transport/limits.py", "CALL_LIMIT"),
    ),
)

CONNECTIONS = 4
LIMITS = Limits(rejection_floor_seconds=0.05)


def target(bed: Bed) -> Target:
    """Return the bed as strangers see it; their evidence is as good as anybody's."""
    return Target(host="127.0.0.1", port=bed.port, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=HashIssuer())


@asynccontextmanager
async def strangers(bed: Bed, kind: Kind, *sources: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Let one connection from each of ``sources`` do ``kind``, and begin once all are in."""
    await settled(lambda: bed.listener.served == 0)
    held = [asyncio.create_task(hold_one(target(bed), source, kind, path=ECHO)) for source in sources]
    await settled(lambda: bed.listener.served == len(sources) or any(one.done() for one in held))
    await asyncio.sleep(0.3)  # what they say is on its way
    try:
        yield held
    finally:
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(ServerLimits(), id="the join service"),
        pytest.param(verification_service.CALLS, id="the verification service"),
        pytest.param(verification_service.PLAIN_CALLS, id="the verification service in plain text"),
        pytest.param(init_service.CALLS, id="the init service"),
        pytest.param(recovery_service.CALLS, id="the recovery service"),
    ],
)
async def test_silent_streams_hold_no_call(calls: ServerLimits) -> None:
    """Four connections that begin sixteen calls each, of which no message comes."""
    async with running_bed(limits=LIMITS, calls=calls) as bed:
        assert await bed.say()
        async with strangers(bed, Kind.SILENT_STREAMS, *["127.0.0.2"] * CONNECTIONS):
            assert all(await asyncio.gather(*(bed.say() for _unused in range(4))))


async def test_a_silent_stream_ends_in_time() -> None:
    """With its reason, counted from the headers; the connection is not used again."""
    async with running_bed(limits=LIMITS, calls=ServerLimits(request_seconds=0.2)) as bed:
        stranger = await Stranger.enter(target(bed), "127.0.0.2")
        stranger.say(preface() + begun_call(ECHO, 1))
        await asyncio.wait_for(stranger.ended(), 20)
        assert [line["reason"] for line in bed.lines()] == ["REQUEST_INCOMPLETE"]


async def test_one_connection_has_few_streams() -> None:
    """Who begins more than he was told ends with his connection."""
    async with running_bed(limits=LIMITS) as bed:
        stranger = await Stranger.enter(target(bed), "127.0.0.2")
        stranger.say(preface() + b"".join(begun_call(ECHO, 1 + 2 * number) for number in range(STREAMS)))
        await asyncio.wait_for(stranger.ended(), 20)
        assert await bed.say()


async def test_silent_seats_from_two_addresses_leave_room_for_a_third() -> None:
    """However often they are renewed: the address that holds the most pays."""
    limits = Limits(served=8, served_per_source=4, reserved=0, rejection_floor_seconds=0.05)
    async with running_bed(limits=limits) as bed:
        assert await bed.say()
        async with strangers(bed, Kind.SILENT_SEATS, *["127.0.0.2"] * 4, *["127.0.0.3"] * 4):
            assert bed.listener.served == 8
            assert await bed.say()


@pytest.mark.parametrize("kind", [Kind.SILENT_SEATS, Kind.DRIPPING])
async def test_a_seat_of_who_proves_nothing_is_given_back_in_time(kind: Kind) -> None:
    """However often another byte comes."""
    limits = Limits(unproven_seconds=0.5, rejection_floor_seconds=0.05)
    async with running_bed(limits=limits) as bed, strangers(bed, kind, "127.0.0.2") as held:
        await asyncio.wait_for(asyncio.wait(held), 20)
        await settled(lambda: bed.listener.served == 0)
        assert bed.events.reasons("connection_broken") == ["CONNECTION_UNPROVEN"]


async def test_a_refused_call_is_the_last_of_its_connection() -> None:
    """To be refused again costs a handshake, and those are counted."""
    async with running_bed(limits=LIMITS, calls=ServerLimits(refusal_floor_seconds=0.1)) as bed:
        stranger = await Stranger.enter(target(bed), "127.0.0.2")
        stranger.say(preface() + whole_call(REFUSE, 1, b"first"))
        await settled(bed.lines)
        ending = asyncio.create_task(stranger.ended())
        for number in range(200):
            if ending.done():
                break
            stranger.say(whole_call(REFUSE, 3 + 2 * number, b"again"))
            await asyncio.sleep(0.02)
        assert ending.done()
        assert len(bed.lines()) <= 20
        assert await bed.say()


async def test_granted_calls_of_a_stranger_are_counted_too() -> None:
    """A challenge is granted to anybody; nobody asks for them for ever on one connection."""
    async with running_bed(limits=Limits(unproven_calls=3, rejection_floor_seconds=0.05)) as bed:
        stranger = await Stranger.enter(target(bed), "127.0.0.2")
        stranger.say(preface())
        ending = asyncio.create_task(stranger.ended())
        for number in range(4):
            stranger.say(whole_call(ECHO, 1 + 2 * number, b"x"))
            await settled(lambda number=number: len(bed.lines()) == number + 1)
        assert [line.get("reason") for line in bed.lines()] == [None, None, None, "CALL_LIMIT"]
        await asyncio.wait_for(ending, 20)
