# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets over networks that nobody wants: three of ten packets lost, half a second there and back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import request_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import first_window
from ansible_collections.attested.kubernetes.tests.support.bad_network import slow_relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import TicketMaterial
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

PROGRAM = "ansible_collections.attested.kubernetes.tests.support.bad_network"
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
ROUND_TRIP = 0.5
LEAST_ROUND_TRIPS = 4
"""One of TCP, one of TLS, two calls."""


def test_half_a_second_there_and_back_costs_time_and_nothing_else(machines: Callable[..., Machine]) -> None:
    machine = machines("slow")

    async def asked() -> tuple[TicketMaterial, float]:
        async with slow_relay(int(machine.bed.endpoint.rpartition(":")[2]), round_trip=ROUND_TRIP) as port:
            began = time.monotonic()
            ticket = await request_ticket(f"127.0.0.1:{port}", machine.config(), machine.machine)
            return ticket, time.monotonic() - began

    ticket, seconds = asyncio.run(asked())
    assert seconds > LEAST_ROUND_TRIPS * ROUND_TRIP, "the relay does not delay"
    assert machine.identity()["status"]["diskId"] == ticket.public.disk_id


def test_three_packets_of_ten_lost_end_in_one_ticket(api: ApiBed) -> None:
    """Services and machine stand in a network of their own; what fails on the way is what is asked again."""
    del api  # whoever has no API server here skips this as well
    alone = ["unshare", "--net"]
    missing = [name for name in ("unshare", "nft", "ip") if shutil.which(name, path=SEARCHED) is None]
    if missing or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"no network namespaces here for this user ({', '.join(missing) or 'not allowed'})")
    argv = [*alone, sys.executable, "-m", PROGRAM]
    done = subprocess.run(argv, env={**os.environ, "PATH": SEARCHED}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lost"] > 0
    assert found["identity"]["diskId"] == found["disk"]
    again = [first_window(TransportError("?", reason=Reason[code])) for code in found["errors"]]
    assert None not in again
