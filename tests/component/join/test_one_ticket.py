# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A join ticket from node to key service and back in one process, with a TPM and an API in memory.

`tests/support/figures.py` counts the functions that this test calls, so nothing between node and key service is a fake.
"""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    JoinConfig,
    JoinMachine,
    fetch_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_service import JoinServiceConfig, serve
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import SocketServer
from ansible_collections.attested.kubernetes.tests.support.exchange import logs_of
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class Services:
    """The running services of a control plane, and the machine that requests a ticket."""

    bed: Bed
    port: int

    def config(self) -> JoinConfig:
        return JoinConfig(
            endpoints=(f"127.0.0.1:{self.port}",),
            pins=JoinCaPins.from_pem(self.bed.bundle.join_ca_certificate),
            cluster_id=self.bed.bundle.cluster_id,
            node_name="w-1",
            disk_id="",
        )

    def machine(self, directory: Path) -> JoinMachine:
        tpm = self.bed.tpm
        return JoinMachine(
            attester=Attester(tpm=tpm, ek=tpm.ek, ak=tpm.ak),
            read_logs=lambda: logs_of(self.bed.boot),
            store=TicketStore(directory / "tickets", require_memory=lambda _directory: None),
            clock=self.bed.clock,
        )


@asynccontextmanager
async def running(bed: Bed, directory: Path) -> AsyncIterator[Services]:
    """Run the join service and the key service until the block ends."""
    log = open_log(stream=io.StringIO(), environ={})
    keys = bed.service(log=log)
    socket = SocketServer(
        directory / "key-service.sock",
        handler=keys.handle,
        allowed=frozenset({os.getuid()}),
        group=os.getgid(),
        refused=lambda _uid: None,
    )
    config = JoinServiceConfig(
        listen_address="127.0.0.1",
        listen_port=free_port(),
        key_service_socket=directory / "key-service.sock",
        runtime_directory=directory,
    )
    await socket.start()
    serving = asyncio.create_task(serve(config, log=log))
    try:
        await listening(config.listen_port, serving)
        yield Services(bed, config.listen_port)
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await socket.stop()
        keys.close()


async def listening(port: int, serving: asyncio.Task[None]) -> None:
    """Wait until the join service accepts connections."""
    async with asyncio.timeout(30):
        while True:
            try:
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if serving.done():
                    serving.result()
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    bed = Bed()
    bed.clock.moment = datetime.now(UTC)  # the certificates are verified at the current time
    with tempfile.TemporaryDirectory(prefix="one-") as name:  # pytest's own paths are too long for a socket
        async with running(bed, Path(name)) as made:
            yield made


async def test_a_node_gets_its_ticket_through_both_services(services: Services, tmp_path: Path) -> None:
    material = await asyncio.to_thread(fetch_ticket, services.config(), services.machine(tmp_path))
    status = services.bed.status()
    assert (status["phase"], status["diskId"]) == ("Admitted", material.public.disk_id)
    assert material.public.joined_before is False
