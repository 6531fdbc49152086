# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ticket over a network that takes half a second there and back."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.join.client import ask
from ansible_collections.attested.kubernetes.tests.support.bad_network import slow_relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.join.ticket import TicketMaterial
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

ROUND_TRIP = 0.5
LEAST_ROUND_TRIPS = 4
"""One of TCP, one of TLS, two calls."""


def test_half_a_second_there_and_back_costs_time_and_nothing_else(machines: Callable[..., Machine]) -> None:
    machine = machines("slow")

    async def asked() -> tuple[TicketMaterial, float]:
        async with slow_relay(int(machine.bed.endpoint.rpartition(":")[2]), round_trip=ROUND_TRIP) as port:
            began = time.monotonic()
            ticket = await ask(f"127.0.0.1:{port}", machine.config(), machine.machine)
            return ticket, time.monotonic() - began

    ticket, seconds = asyncio.run(asked())
    assert seconds > LEAST_ROUND_TRIPS * ROUND_TRIP, "the relay does not delay"
    assert machine.identity()["status"]["diskId"] == ticket.public.disk_id
