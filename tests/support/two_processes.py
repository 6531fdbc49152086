# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two long-running processes that admins query on a machine, in one process: real sockets, TLS and log."""

from __future__ import annotations

import io
import json
import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Health
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import SocketServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_front import NetworkSide
    from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import RpcService

    MakeService = Callable[[Log], RpcService]
    MakeFront = Callable[..., NetworkSide]

PLENTY = {"calls_per_second": 1000.0, "call_burst": 1000}


@dataclass
class Running:
    """A machine with its desk at ``socket``; ``make_front`` creates its network side."""

    directory: Path
    stream: io.StringIO
    settings: dict[str, Any]
    make_front: MakeFront
    endpoint: str = ""

    def __post_init__(self) -> None:
        """Set an empty state."""
        self.log = Log(self.stream, as_json=True, clock=SystemClock())
        self._front: NetworkSide | None = None

    @property
    def socket(self) -> Path:
        """The socket of the desk."""
        return self.directory / "desk.sock"

    async def open(self) -> None:
        """Start the network side."""
        settings = {
            "listen_address": "127.0.0.1",
            "listen_port": 0,
            "runtime_directory": self.directory,
            **self.settings,
        }
        health = Health(Notifier({}), version="test", parts=("listener",))
        self._front = self.make_front(self.socket, settings, health=health, log=self.log, clock=SystemClock())
        self.endpoint = f"127.0.0.1:{await self._front.start()}"

    async def open_again(self) -> None:
        """Restart the network side at the same address."""
        self.settings["listen_port"] = int(self.endpoint.rpartition(":")[2])
        await self.open()

    async def close(self) -> None:
        """End the network side."""
        if self._front is not None:
            await self._front.stop(grace_seconds=0.0)
        self._front = None

    def reasons(self) -> list[str]:
        """Return the reasons of all refusals of both processes."""
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line["reason"] for line in lines if line.get("outcome") == "refused"]


@asynccontextmanager
async def both_running(
    make_service: MakeService, make_front: MakeFront, settings: dict[str, Any]
) -> AsyncIterator[Running]:
    """Run desk and network side, joined by their real unix socket, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="tp-") as name:  # the paths of pytest are too long for a socket
        machine = Running(Path(name), io.StringIO(), {**PLENTY, **settings}, make_front)
        service = make_service(machine.log)
        socket = SocketServer(
            machine.socket,
            handler=service.handle,
            allowed=frozenset({os.getuid()}),
            group=os.getgid(),
            refused=lambda _uid: None,
        )
        await socket.start()
        try:
            await machine.open()
            yield machine
        finally:
            await machine.close()
            await socket.stop()
            service.close()
