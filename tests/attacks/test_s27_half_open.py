# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S27: connections that go nowhere, by the hundred, while good machines join."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import Limits
from ansible_collections.attested.kubernetes.tests.component.atls.test_abuse import client_hello, closed, opened
from ansible_collections.attested.kubernetes.tests.support.atls import QUICK, pieces, running_bed, settled
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

THREAT = Threat(
    id="S27",
    title="Half-open handshakes",
    case="CVE-2023-38200",
    bed="sockets",
    stops=(
        ("transport/relay.py", "CONNECTION_TIMEOUT"),
        ("transport/limits.py", "CONNECTION_LIMIT"),
    ),
)

IDLE, HALF_OPEN = 500, 100


@pytest.mark.parametrize(
    ("count", "first"),
    [
        pytest.param(IDLE, b"", id="five hundred that say nothing"),
        pytest.param(HALF_OPEN, client_hello(), id="a hundred that stop after their hello"),
    ],
)
async def test_good_machines_pass_meanwhile(count: int, first: bytes) -> None:
    """Those that are too many for one address give way, the oldest first; the good machine gets its answer."""
    async with running_bed(limits=replace(QUICK, handshake_seconds=60)) as bed:
        assert await bed.say()
        strangers = await opened(bed, count, first)
        kept = min(count, Limits().unverified_per_source)
        await settled(lambda: bed.listener.unverified == kept)
        assert all(await asyncio.gather(*(bed.say() for _unused in range(5))))
        assert set(bed.events.reasons("connection_failed")) <= {"CONNECTION_LIMIT"}
        assert bool(bed.events.reasons("connection_failed")) == (count > kept)
        closed(strangers)
        await settled(lambda: bed.listener.unverified == 0)


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "a byte now and then"])
async def test_each_of_them_ends_in_time(*, drips: bool) -> None:
    async with running_bed(limits=Limits(handshake_seconds=0.5)) as bed:
        ((reader, writer),) = await opened(bed, 1)

        async def drip() -> None:
            for piece in pieces(client_hello(), 1):
                writer.write(piece)
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip() if drips else asyncio.sleep(0))
        with suppress(ConnectionResetError):  # a byte that came after the service closed the connection is answered so
            assert await asyncio.wait_for(reader.read(), 30) == b""
        dripping.cancel()
        assert bed.events.reasons("connection_failed") == ["CONNECTION_TIMEOUT"]
        writer.transport.abort()
