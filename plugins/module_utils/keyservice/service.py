# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-key-service`: the release decision of a control plane, behind one unix socket.

It has no network listener. It alone reads the keys and talks to the API; the join service relays to it. What it is put
together of stands in `app`, what it answers in `rpc`.
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

    On SIGHUP ``path`` is read again: what tickets say and the EK roots change then, the rest needs a restart.
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
    parts.audit.tell()
    parts.audit.sync()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error where it cannot serve."""
    return run_service(
        argv,
        name="attested-key-service",
        description="Decide about tickets of this cluster, behind a unix socket.",
        kind=KeyServiceConfig,
        path=CONFIG,
        serve=lambda config, path: serve(config, log=open_log(), path=path),
    )
