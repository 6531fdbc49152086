# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What attested TLS costs beside grpcio's own mutual TLS, in the same run, interleaved.

Server and client are two processes on this machine; evidence is a hash, so that only the transport is measured. Each
operation is a new TCP connection, handshake, channel and one unary call (`connect` without the call).
Usage: python tests/bench/transport.py [--rounds N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import Limits
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    HashIssuer,
    call,
    running_bed,
    service_credentials,
)
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, hand_on
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

CONCURRENCY = (1, 8, 32)
IDLE = 100
STREAM_BYTES = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the measured server listens, and what its client needs."""

    port: int
    baseline_port: int
    ca_certificate: bytes
    client_chain: bytes
    client_key: bytes


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def baseline_certificate() -> tuple[bytes, bytes]:
    """Return a self-signed certificate and key that both ends of the baseline use and trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "baseline")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now.replace(year=now.year - 1))
        .not_valid_after(now.replace(year=now.year + 1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("baseline")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), pem_of(key)


async def _baseline_echo(request: bytes, context: Any) -> bytes:
    del context
    return request


async def _serve(pipe: Connection) -> None:
    certificate, key = baseline_certificate()
    baseline = grpc.aio.server()
    handlers = {"Say": grpc.unary_unary_rpc_method_handler(_baseline_echo)}
    baseline.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    credentials = grpc.ssl_server_credentials([(key, certificate)], certificate, require_client_auth=True)
    baseline_port = baseline.add_secure_port("127.0.0.1:0", credentials)
    await baseline.start()
    limits = Limits(
        served=1000,
        served_per_source=1000,
        newcomers_per_second=1000,
        newcomer_burst=1000,
        arrivals_per_second=1000,
        arrival_burst=1000,
        unproven_calls=1000,
        unproven_seconds=900,
    )
    async with running_bed(limits=limits) as bed:
        bed.credentials.append(service_credentials(bed.ca))
        pipe.send(
            Server(
                port=bed.port,
                baseline_port=baseline_port,
                ca_certificate=bed.ca.certificate,
                client_chain=certificate,
                client_key=key,
            )
        )
        while (await asyncio.to_thread(pipe.recv)) is not None:
            bed.seen.clear()
            pipe.send((_resident_bytes(), time.process_time()))
    await baseline.stop(0)


def serve(pipe: Connection) -> None:
    """Run both servers until the pipe says None."""
    asyncio.run(_serve(pipe))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def operations(server: Server) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return what is measured, by name."""
    pins = JoinCaPins.from_pem(JoinCa(certificate=server.ca_certificate, private_key=b"").certificate)
    credentials = grpc.ssl_channel_credentials(server.client_chain, server.client_key, server.client_chain)
    options = (("grpc.ssl_target_name_override", "baseline"), ("grpc.use_local_subchannel_pool", 1))

    async def baseline() -> None:
        target = f"127.0.0.1:{server.baseline_port}"
        async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
            await call(channel)

    async def attested() -> None:
        async with dial(server, pins) as connection:
            await call(connection.channel())

    async def attested_connect() -> None:
        async with dial(server, pins):
            pass

    return {
        "mutual TLS of grpcio, with call": baseline,
        "attested TLS, with call": attested,
        "attested TLS, connect": attested_connect,
    }


def dial(server: Server, pins: JoinCaPins) -> Any:
    """Connect as a node does."""
    return connect(f"127.0.0.1:{server.port}", pins=pins, cluster_id=CLUSTER_ID, issuer=HashIssuer())


async def rate(operation: Callable[[], Awaitable[None]], *, at_once: int, seconds: float) -> tuple[float, list[float]]:
    """Repeat ``operation`` for ``seconds`` with ``at_once`` loops; return operations a second and all latencies."""
    latencies: list[float] = []
    begun = time.monotonic()

    async def loop() -> None:
        while time.monotonic() - begun < seconds:
            start = time.monotonic()
            await operation()
            latencies.append(time.monotonic() - start)

    await asyncio.gather(*(loop() for _unused in range(at_once)))
    return len(latencies) / (time.monotonic() - begun), latencies


async def measure(server: Server, ask: Callable[[], tuple[int, float]], *, rounds: int, seconds: float) -> None:
    """Print the table."""
    named = operations(server)
    for operation in named.values():
        await rate(operation, at_once=1, seconds=0.3)
    for at_once in CONCURRENCY:
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in named}
        for _unused in range(rounds):
            for name, operation in named.items():
                cpu = ask()[1]
                found, latencies = await rate(operation, at_once=at_once, seconds=seconds)
                results[name].append((found, (ask()[1] - cpu) / len(latencies) * 1000))
        base = statistics.median(found for found, _unused in next(iter(results.values())))
        for name, values in results.items():
            found = statistics.median(value for value, _unused in values)
            cpu = statistics.median(value for _unused, value in values)
            print(f"c={at_once:<3} {name:<32} {found:7.0f}/s  ratio {found / base:4.2f}  server CPU {cpu:4.1f} ms")
            beside = f"/s, {next(iter(named))}"
            hand_on(Figure(name=f"{name}, c={at_once}", value=found, unit="/s", baseline=base, baseline_name=beside))
    await measure_open(server, ask)


async def measure_open(server: Server, ask: Callable[[], tuple[int, float]]) -> None:
    """Print what open connections cost and carry."""
    pins = JoinCaPins.from_pem(server.ca_certificate)
    before = ask()[0]
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(dial(server, pins)) for _unused in range(IDLE)]
        per_connection = (ask()[0] - before) / IDLE / 1024
        channel = connections[0].channel()
        begun = time.monotonic()
        for _unused in range(100):
            await call(channel, bytes(STREAM_BYTES))
        carried = 100 * STREAM_BYTES * 2 / (time.monotonic() - begun) / 1e6
        small = [await timed(call(channel)) for _unused in range(300)]
    print(f"idle connection: {per_connection:.0f} KB of the server; its process now: {ask()[0] / 1e6:.0f} MB")
    print(
        f"open connection: {carried:.0f} MB/s both ways in calls of {STREAM_BYTES >> 10} KiB; "
        f"small call p50 {statistics.median(small) * 1000:.2f} ms"
    )


async def timed(work: Awaitable[Any]) -> float:
    """Return the seconds that ``work`` takes."""
    begun = time.monotonic()
    await work
    return time.monotonic() - begun


def main() -> None:
    """Start the server, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    chosen = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs,))
    process.start()
    server: Server = ours.recv()

    def ask() -> tuple[int, float]:
        ours.send("figures")
        figures: tuple[int, float] = ours.recv()
        return figures

    try:
        asyncio.run(measure(server, ask, rounds=chosen.rounds, seconds=chosen.seconds))
    finally:
        ours.send(None)
        process.join()


if __name__ == "__main__":
    main()
