# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-init-service`: TCP 9000 of a machine that is no node yet (docs/adr/0016).

It runs as a user of its own, without capabilities, secrets and TPM. It terminates TLS, limits the rate of calls, and
calls the bootstrapper on the same machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.host import SystemClock
from ..core.logs import open_log
from ..core.runtime import run_service
from ..transport.claims import claims
from ..transport.grpc_server import ServerLimits
from .init_messages import IDENTIFY, INIT, MAX_REQUEST_BYTES, TESTIFY
from .machine_front import AdminGate, NetworkSide, Proving, ServedCalls, health_of, until_stopped
from .machine_socket import INIT_SOCKET, MachinePort, init_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.grpc_server import Call, Health

CONFIG = "/etc/attested/init-service.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitServiceConfig:
    """The configuration file; every entry has a default that fits a fresh machine.

    ``calls_per_second`` and ``call_burst`` limit the calls of one address.
    """

    listen_address: str = "0.0.0.0"  # noqa: S104 - the admin may connect from any address, and is authenticated by a signature
    listen_port: int = 9000
    bootstrapper_socket: Path = Path(INIT_SOCKET)
    runtime_directory: Path = Path("/run/attested-init")
    calls_per_second: float = 0.5
    call_burst: int = 12


CALLS = ServerLimits(
    message_bytes=MAX_REQUEST_BYTES, calls=32, calls_per_source=8, call_seconds=60.0, refusal_floor_seconds=0.3
)
"""A refusal takes the same time, whichever check failed."""


def init_network_side(
    config: InitServiceConfig, *, port: MachinePort, health: Health, log: Log, clock: Clock
) -> NetworkSide:
    """Return the network side of init, which calls ``port`` within the limits of ``config``."""
    gate = AdminGate(config, clock=clock)

    def served(spki: bytes) -> ServedCalls:
        proving = Proving(port, gate, spki_sha256=spki)

        async def init(request: bytes, call: Call) -> AsyncIterator[bytes]:
            """Answer `init.API/Init`: begin or find the job, then stream its messages."""
            handle = await port.begin(proving.begin(request, call), correlation_id=call.correlation_id)
            claims().prove()
            seen, ended = 0, False
            while not ended:
                answers, ended = await port.follow(handle, seen)
                seen += len(answers)
                for one in answers:
                    yield one

        handlers = {IDENTIFY: proving.identify, TESTIFY: proving.testify}
        return ServedCalls(handlers=handlers, streams={INIT: init}, limits=CALLS)

    return NetworkSide(config, served=served, health=health, log=log, clock=clock)


async def serve(config: InitServiceConfig, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    health, port = health_of(), init_port(config.bootstrapper_socket)
    await until_stopped(
        init_network_side(config, port=port, health=health, log=log, clock=SystemClock()), health, log=log
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error if it cannot serve."""
    return run_service(
        argv,
        name="attested-init-service",
        description="Let an admin make a cluster on this machine.",
        kind=InitServiceConfig,
        path=CONFIG,
        serve=lambda config, _path: serve(config, log=open_log()),
    )
