# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The long-running side of a locked node in a separate process, so that a test can search its memory.

Usage: python -m ...recovery_node, a JSON object on standard input; prints its port, and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import AuditPlace, AuditTrail
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import (
    recovery_port,
    recovery_service,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import (
    Contest,
    HelperTrial,
    Locked,
    RecoveryDesk,
    Unlocking,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_service import (
    RecoveryServiceConfig,
    recovery_network_side,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Facts
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Health
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import SocketServer
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Handing:
    """An opener that passes the key file on without reading it, like the real one."""

    def __init__(self, taken: Path) -> None:
        """Move the file to ``taken``."""
        self._taken = taken

    def open(self, key_file: Path) -> None:
        """Move the file."""
        key_file.rename(self._taken)


def desk_of(settings: dict[str, Any], directory: Path) -> RecoveryDesk:
    """Return the desk of the node in ``settings``."""
    cluster_id = bytes.fromhex(settings["cluster_id"])

    @contextmanager
    def attester() -> Iterator[Attester]:
        with open_tpm(settings["tcti"], lock_directory=Path(settings["locks"])) as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    locked = Locked(
        device=settings["device"], disk=DiskId(settings["disk"]), cluster_id=cluster_id, memory=directory / "memory"
    )
    trial = HelperTrial(locked, program=settings["program"])
    return RecoveryDesk(
        attester=attester,
        facts=lambda: Facts(cluster_id=cluster_id, logs=logs_of(boots.load(settings["boot"]))),
        pins=JoinCaPins.from_pem(settings["join_ca"].encode()),
        unlocking=Unlocking(trial, Handing(directory / "taken"), Contest()),
        record=AuditTrail(
            AuditPlace(directory=directory / "audit"), node="w-1", clock=SystemClock(), random=SystemRandom()
        ),
        clock=SystemClock(),
    )


async def serve(settings: dict[str, Any]) -> None:
    """Serve both sides until the process is ended."""
    directory = Path(settings["directory"])
    log = Log(io.StringIO(), as_json=True, clock=SystemClock())
    path = directory / "desk.sock"
    service = recovery_service(desk_of(settings, directory), log=log)
    socket = SocketServer(
        path, handler=service.handle, allowed=frozenset({os.getuid()}), group=os.getgid(), refused=lambda _uid: None
    )
    await socket.start()
    config = RecoveryServiceConfig(listen_address="127.0.0.1", listen_port=0, runtime_directory=directory)
    health = Health(Notifier({}), version="test", parts=("listener",))
    front = recovery_network_side(config, port=recovery_port(path), health=health, log=log, clock=SystemClock())
    sys.stdout.write(f"{await front.start()}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.stdin.readline())))
