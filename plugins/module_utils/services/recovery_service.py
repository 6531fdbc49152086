# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-recovery-service`: TCP 9999 of a locked node, by which an admin opens its disk (docs/adr/0036).

It runs as a user of its own, without capabilities, secrets and TPM. It terminates TLS, limits the rate of calls, and
calls the process with the TPM.
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
from .machine_front import AdminGate, NetworkSide, Proving, ServedCalls, health_of, until_stopped
from .machine_socket import RECOVERY_SECONDS, RECOVERY_SOCKET, MachinePort, recovery_port
from .recovery_messages import IDENTIFY, MAX_REQUEST_BYTES, RECOVER, TESTIFY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.grpc_server import Call, Health

CONFIG = "/etc/attested/recovery-service.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryServiceConfig:
    """The configuration file. ``calls_per_second`` and ``call_burst`` limit the calls of one address."""

    listen_address: str = "0.0.0.0"  # noqa: S104 - the admin may connect from any address, and is authenticated by a signature
    listen_port: int = 9999
    recovery_socket: Path = Path(RECOVERY_SOCKET)
    runtime_directory: Path = Path("/run/attested-recovery")
    calls_per_second: float = 0.5
    call_burst: int = 12


CALLS = ServerLimits(
    message_bytes=MAX_REQUEST_BYTES,
    calls=16,
    calls_per_source=8,
    call_seconds=RECOVERY_SECONDS,
    refusal_floor_seconds=0.3,
)


def recovery_network_side(
    config: RecoveryServiceConfig, *, port: MachinePort, health: Health, log: Log, clock: Clock
) -> NetworkSide:
    """Return the network side of recovery, which calls ``port`` within the limits of ``config``."""
    gate = AdminGate(config, clock=clock)

    def served(spki: bytes) -> ServedCalls:
        proving = Proving(port, gate, spki_sha256=spki)

        async def recover(request: bytes, call: Call) -> bytes:
            """Answer `recoverproto.API/Recover`; the request is passed on unchanged."""
            answer = await port.recover(proving.begin(request, call), correlation_id=call.correlation_id)
            claims().prove()
            return answer

        return ServedCalls(
            handlers={IDENTIFY: proving.identify, TESTIFY: proving.testify, RECOVER: recover}, limits=CALLS
        )

    return NetworkSide(config, served=served, health=health, log=log, clock=clock)


async def serve(config: RecoveryServiceConfig, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    health, port = health_of(), recovery_port(config.recovery_socket)
    await until_stopped(
        recovery_network_side(config, port=port, health=health, log=log, clock=SystemClock()), health, log=log
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error if it cannot serve."""
    return run_service(
        argv,
        name="attested-recovery-service",
        description="Let an admin open the disk of this node.",
        kind=RecoveryServiceConfig,
        path=CONFIG,
        serve=lambda config, _path: serve(config, log=open_log()),
    )
