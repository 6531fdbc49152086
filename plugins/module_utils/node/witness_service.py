# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent witness`: issues evidence of this machine over a unix socket, from its TPM and the logs of its boot.

It has no network listener. The verification service, which has one, may send two kinds of requests, and a third kind if
the configuration permits it.
"""

from __future__ import annotations

import argparse
import asyncio
import pwd
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.host import SystemClock, release
from ..core.logs import open_log
from ..core.runtime import Notifier, wait_for_stop
from ..errors import AttestedError, SystemFault
from ..reasons import Reason
from ..services.handshake_evidence import Attester
from ..services.machine_socket import WITNESS_SOCKET, witness_service
from ..services.witness import Facts, Witness
from ..tpm.client import open_tpm
from ..tpm.keys import load_attestation_key, load_endorsement_key
from ..transport.unix_rpc import SocketServer
from .config import DEFAULT_PATH, load_node_config
from .witness import read_event_logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..core.logs import Log

USER = "attested-verification"


@contextmanager
def attester_of(config: str | Path) -> Iterator[Attester]:
    """Open the TPM of this machine and load its two keys; raises `TpmError`, NODE_CONFIG_MALFORMED."""
    with open_tpm(load_node_config(config).tcti) as tpm:
        yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))


def facts_of(config: str | Path) -> Facts:
    """Return this machine's cluster id and event logs; raises NODE_CONFIG_MALFORMED, FILE_UNUSABLE."""
    node = load_node_config(config)
    return Facts(cluster_id=node.cluster_id, logs=read_event_logs(node.logs))


async def serve(
    config: str | Path, socket: Path, user: str, *, log: Log, insecure_constellation_verify: bool = False
) -> None:
    """Serve until SIGTERM; raises CONFIG_INVALID, NODE_CONFIG_MALFORMED and FILE_UNUSABLE before it listens."""
    entry = _user(user)
    load_node_config(config)
    witness = Witness(
        attester=partial(attester_of, config),
        facts=partial(facts_of, config),
        clock=SystemClock(),
        insecure_constellation_verify=insecure_constellation_verify,
    )
    service = witness_service(witness, log=log)
    server = SocketServer(
        socket,
        handler=service.handle,
        allowed=frozenset({0, entry.pw_uid}),
        group=entry.pw_gid,
        refused=lambda uid: log.event("caller_refused", user=uid),
        stranger=Reason.CALLER_UNKNOWN,
    )
    await server.start()
    Notifier().ready(f"{release()}, answering at {socket}")
    log.event("serving", socket=str(socket))
    log.event("stopping", signal=await wait_for_stop())
    await server.stop()
    service.close()


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise SystemFault(
            f"expected the user {name} of the verification service, found none", reason=Reason.CONFIG_INVALID
        ) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error if it cannot serve."""
    parser = argparse.ArgumentParser(
        prog="attested-agent witness", description="Issue evidence of this machine with its TPM over a unix socket."
    )
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    parser.add_argument("--socket", default=WITNESS_SOCKET, type=Path, metavar="PATH", help="(default: %(default)s)")
    parser.add_argument("--user", default=USER, help="the user that may call it besides root (default: %(default)s)")
    parser.add_argument(
        "--insecure-constellation-verify",
        action="store_true",
        help="also serve Constellation's request, with evidence that is not bound to a connection",
    )
    options = parser.parse_args(argv)
    permitted = options.insecure_constellation_verify
    try:
        asyncio.run(
            serve(
                options.config,
                options.socket,
                options.user,
                log=open_log(),
                insecure_constellation_verify=permitted,
            )
        )
    except AttestedError as error:
        sys.stderr.write(f"attested-agent witness: {error}\n")
        return 1
    return 0
