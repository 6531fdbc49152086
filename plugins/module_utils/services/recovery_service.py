# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-recovery-service`: TCP 9999 of a locked node, by which an admin opens its disk (docs/adr/0036).

Its own user, no capabilities, no secrets and no TPM: it ends TLS, counts, and asks the process beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.host import SystemClock
from ..core.logs import open_log
from ..core.rate import TokenBuckets
from ..core.runtime import run_service
from ..reasons import Reason
from ..transport.claims import claims
from ..transport.grpc_server import ServerLimits
from .init_service import AdminFront, Reception, Served, until_stopped
from .machine_socket import RECOVERY_SECONDS, RECOVERY_SOCKET, MachinePort, recovery_port
from .recovery_messages import IDENTIFY, MAX_REQUEST_BYTES, RECOVER, TESTIFY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.grpc_server import Call
    from ..transport.health import Health

CONFIG = "/etc/attested/recovery-service.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryServiceConfig:
    """Where it listens, and ``calls_per_second`` and ``call_burst``: what one address may ask."""

    listen_address: str = "0.0.0.0"  # noqa: S104 - the admin may come from anywhere, and is known by a signature
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


class RecoveryCounter(Reception):
    """The three calls of an admin."""

    def __init__(self, port: MachinePort, buckets: TokenBuckets, *, spki_sha256: bytes) -> None:
        """Ask at ``port``."""
        super().__init__(port, buckets, spki_sha256=spki_sha256)
        self._port = port

    async def recover(self, request: bytes, call: Call) -> bytes:
        """Answer `recoverproto.API/Recover`; the request goes on as it came."""
        answer = await self._port.recover(self.begin(request, call), correlation_id=call.correlation_id)
        claims().prove()
        return answer


class RecoveryFront(AdminFront):
    """The network side of recovery."""

    def __init__(
        self, config: RecoveryServiceConfig, *, port: MachinePort, health: Health, log: Log, clock: Clock
    ) -> None:
        """Ask at ``port`` what ``config`` allows: a source that asks too often waits, and none is locked out."""
        buckets = TokenBuckets(
            rate=config.calls_per_second,
            burst=config.call_burst,
            clock=clock,
            reason=Reason.ADMIN_RATE,
            what="calls a second from one address",
        )

        def served(spki: bytes) -> Served:
            counter = RecoveryCounter(port, buckets, spki_sha256=spki)
            handlers = {IDENTIFY: counter.identify, TESTIFY: counter.testify, RECOVER: counter.recover}
            return Served(handlers=handlers, limits=CALLS)

        super().__init__(config, served=served, health=health, log=log, clock=clock)


async def serve(config: RecoveryServiceConfig, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    port, clock = recovery_port(config.recovery_socket), SystemClock()
    await until_stopped(lambda health: RecoveryFront(config, port=port, health=health, log=log, clock=clock), log=log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error where it cannot serve."""
    return run_service(
        argv,
        name="attested-recovery-service",
        description="Let an admin open the disk of this node.",
        kind=RecoveryServiceConfig,
        path=CONFIG,
        serve=lambda config, _path: serve(config, log=open_log()),
    )
