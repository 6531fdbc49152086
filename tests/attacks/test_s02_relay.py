# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S2: a proxy with a stolen service key stands between a genuine machine and the genuine service."""

from __future__ import annotations

import asyncio
import io
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import (
    DoorkeeperIssuer,
    DoorkeeperValidator,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    BINDING_METADATA,
    CHALLENGE,
    ISSUE_JOIN_TICKET,
    call,
    request_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.claims import ClaimsInterceptor, Registry
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Call, UnixServer
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.relay import Listener
from ansible_collections.attested.kubernetes.tests.support.atls import service_credentials
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import AttestedConnection
    from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

THREAT = Threat(
    id="S2",
    title="Relay over the attacker's TLS session",
    case="CVE-2026-33697, CVE-2026-108265, CVE-2026-112377",
    bed="api",
    stops=(("evidence/verify.py step 4", "BINDING_MISMATCH"),),
)


class Proxy:
    """Passes both calls on over its own session, byte by byte."""

    def __init__(self, onward: AttestedConnection) -> None:
        self.onward = onward
        self.passed: list[str] = []

    async def challenge(self, request: bytes, call_: Call) -> bytes:
        self.passed.append("challenge")
        return await call(self.onward, CHALLENGE, request)

    async def ticket(self, request: bytes, call_: Call) -> bytes:
        self.passed.append("ticket")
        bound = call_.metadata[BINDING_METADATA]
        assert isinstance(bound, bytes)
        return await call(self.onward, ISSUE_JOIN_TICKET, request, ((BINDING_METADATA, bound),))


@asynccontextmanager
async def proxied(bed: ServiceBed, attacker: Machine) -> AsyncIterator[tuple[str, Proxy]]:
    """Run the proxy: to machines it shows a certificate of the real join CA, to the service the attacker's own TPM."""
    ca = JoinCa(certificate=bed.bundle.join_ca_certificate, private_key=bed.bundle.join_ca_key.reveal())
    stolen = service_credentials(ca, cluster_id=bed.bundle.cluster_id, now=datetime.now(UTC))
    config, issuer = attacker.config(), DoorkeeperIssuer(attacker.machine.attester)
    registry = Registry()
    with tempfile.TemporaryDirectory(prefix="proxy-") as name:
        async with connect(bed.endpoint, pins=config.pins, cluster_id=config.cluster_id, issuer=issuer) as onward:
            proxy = Proxy(onward)
            server = UnixServer(
                socket_path=Path(name) / "backend",
                handlers={CHALLENGE: proxy.challenge, ISSUE_JOIN_TICKET: proxy.ticket},
                log=open_log(stream=io.StringIO()),
                interceptors=(ClaimsInterceptor(registry),),
            )
            listener = Listener(
                backend_socket=Path(name) / "backend",
                registry=registry,
                server_credentials=lambda: stolen,
                validator=DoorkeeperValidator(),
                runtime_directory=Path(name),
            )
            await server.start()
            port = await listener.start("127.0.0.1", 0)
            try:
                yield f"127.0.0.1:{port}", proxy
            finally:
                await listener.stop()
                await server.stop()


def test_a_proxy_with_two_sessions(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """Everything that it passes on is genuine and unchanged; the exporters of the two sessions differ."""
    machine, attacker = machines(), machines()
    assert machine.ask()

    async def attack() -> list[str]:
        async with proxied(bed, attacker) as (endpoint, proxy):
            with pytest.raises(AttestedError):
                await request_ticket(endpoint, machine.config(), machine.machine)
            return proxy.passed

    assert asyncio.run(attack()) == ["challenge", "ticket"]
    assert bed.last_refusal()["reason"] == "BINDING_MISMATCH"
    assert bed.last_refusal()["ek"] == machine.identity()["spec"]["ekSha256"]


@pytest.mark.parametrize(
    "position", [pytest.param(0, id="first"), pytest.param(17, id="middle"), pytest.param(31, id="last")]
)
@pytest.mark.parametrize("field", ["exporter", "spki_sha256"])
def test_one_bit_of_the_channel(exchange: Exchange, field: str, position: int) -> None:
    """What the verifier knows of the channel differs in one bit from what the machine quoted."""
    assert exchange.run()

    value = bytearray(getattr(exchange.context, field))
    value[position] ^= 1
    elsewhere = replace(exchange.context, **{field: bytes(value)})
    assert code_of(lambda: exchange.run(context=elsewhere)) == "BINDING_MISMATCH"
