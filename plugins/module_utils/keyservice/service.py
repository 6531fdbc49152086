# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-key-service`: decides about tickets on a control plane, behind unix sockets.

It has no network listener. Only this service reads the keys and calls the API; the join service relays calls to it.
`app` builds its parts, and `rpc` answers the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.host import release
from ..core.logs import open_log
from ..core.runtime import Notifier, run_service, wait_for_stop
from .app import assemble
from .config import CONFIG, KeyServiceConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.logs import Log


async def serve(config: KeyServiceConfig, *, log: Log, path: str = CONFIG) -> None:
    """Serve until SIGTERM; raises KEYS_ABSENT, CLUSTER_CA_UNUSABLE, FILE_UNUSABLE, TPM_… before it listens.

    On SIGHUP ``path`` is read again: the endpoint in tickets and the EK roots change, all other fields need a restart.
    """
    parts = assemble(config, log=log, path=path)
    parts.reloader.listen()
    for server in parts.servers:
        await server.start()
    parts.tasks.start()
    Notifier().ready(f"{release()}, serving cluster {parts.cluster_id.hex()[:16]}")
    log.event("serving", cluster=parts.cluster_id.hex(), socket=str(config.socket))
    log.event("stopping", signal=await wait_for_stop())
    for server in parts.servers:
        await server.stop()
    parts.service.close()
    parts.audit.append("stopped")
    parts.audit.write_counts()
    parts.audit.sync()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, or 1 with the error on standard error if it cannot serve."""
    return run_service(
        argv,
        name="attested-key-service",
        description="Decide about tickets of this cluster, behind a unix socket.",
        kind=KeyServiceConfig,
        path=CONFIG,
        serve=lambda config, path: serve(config, log=open_log(), path=path),
    )
