# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay and its client over real sockets: who gets through, and what each refused peer meets."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    SystemFault,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import MAX_EVIDENCE_BYTES
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import Limits
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.relay import Listener
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    ECHO,
    QUICK,
    Bed,
    HashIssuer,
    call,
    expired_credentials,
    honest_evidence,
    running_bed,
    service_credentials,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

FOREIGN_PINS = JoinCaPins.from_pem(make_join_ca("test", now=datetime.now(UTC)).certificate)


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    """A relay with its service."""
    async with running_bed() as running:
        yield running


def dial(bed: Bed, issuer: HashIssuer | None = None, **options: Any) -> Any:
    """Connect as a machine of the cluster, but for what ``options`` change."""
    wanted = {"pins": bed.pins, "cluster_id": CLUSTER_ID, "issuer": issuer or HashIssuer(), "timeout_seconds": 10}
    return connect(bed.endpoint, **{**wanted, **options})


async def status_of(channel: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
    """Return status and text of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, **options)
    return caught.value.code(), caught.value.details()


async def rejection(bed: Bed, forge: Callable[[bytes, bytes], bytes]) -> tuple[grpc.StatusCode, str]:
    """Return what a peer with forged evidence hears."""
    async with dial(bed, HashIssuer(forge)) as connection:
        return await status_of(connection.channel())


# ---- who gets through


async def test_both_sides_hold_the_same_binding(bed: Bed) -> None:
    """The handler's claims are those of this very connection: exporter, key, nonce, evidence, address."""
    issuer = HashIssuer()
    async with dial(bed, issuer) as connection:
        answer = await call(connection.channel(), b"request bytes")
    claims, request = bed.seen[0]
    user_data, nonce = issuer.calls[0]
    assert answer == connection.exporter + b"request bytes"
    assert request == b"request bytes"
    assert (claims.exporter, claims.spki_sha256) == (connection.exporter, connection.spki_sha256)
    assert (claims.peer_nonce, claims.evidence) == (nonce, honest_evidence(user_data, nonce))
    assert user_data == connection.spki_sha256
    assert claims.remote.startswith("127.0.0.1:")


async def test_twenty_peers_at_once_have_their_own_claims(bed: Bed) -> None:
    """No claims cross over between connections."""

    async def one(number: int) -> bool:
        async with dial(bed) as connection:
            words = b"%d" % number
            return await call(connection.channel(), words) == connection.exporter + words

    assert all(await asyncio.gather(*(one(number) for number in range(20))))
    assert len({claims.exporter for claims, _unused in bed.seen}) == 20
    assert len({claims.peer_nonce for claims, _unused in bed.seen}) == 20


async def test_a_renewed_certificate_needs_no_restart(bed: Bed) -> None:
    """The next connection sees the chain that the callable returns by then."""
    async with dial(bed) as connection:
        assert connection.server_certificate == bed.credentials[0].chain[0]
    bed.credentials.append(service_credentials(bed.ca))
    async with dial(bed) as connection:
        assert connection.server_certificate == bed.credentials[1].chain[0]


async def test_evidence_of_the_largest_size_passes(bed: Bed) -> None:
    """Sixty thousand bytes in the certificate; refused here only because it is not honest."""
    async with dial(bed, HashIssuer(lambda *_rest: bytes(MAX_EVIDENCE_BYTES))) as connection:
        await status_of(connection.channel())
    assert [len(document) for document in bed.validator.calls] == [MAX_EVIDENCE_BYTES]


async def test_megabytes_pass_both_ways(bed: Bed) -> None:
    """Splicing keeps order and content under backpressure."""
    words = bytes(range(256)) * 3900
    async with dial(bed) as connection:
        for _unused in range(5):
            assert await call(connection.channel(), words) == connection.exporter + words


# ---- who does not: evidence


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda _user, _nonce: b"nonsense", id="evidence that is none"),
        pytest.param(lambda _user, nonce: honest_evidence(bytes(32), nonce), id="evidence for another key"),
        pytest.param(lambda user, _nonce: honest_evidence(user, bytes(32)), id="evidence over another nonce"),
    ],
)
async def test_bad_evidence_hears_one_coarse_text(bed: Bed, forge: Callable[[bytes, bytes], bytes]) -> None:
    """Whatever is wrong, the peer hears the same, and the service is never called."""
    assert await rejection(bed, forge) == (grpc.StatusCode.UNAUTHENTICATED, "attestation refused")
    assert bed.seen == []
    assert bed.events.reasons("peer_rejected") == ["EVIDENCE_MISSING"]


async def test_replayed_evidence_is_refused(bed: Bed) -> None:
    """Evidence that was accepted a moment ago is over a nonce that nobody asks for again."""
    recorded: list[bytes] = []

    def record(user_data: bytes, nonce: bytes) -> bytes:
        recorded.append(honest_evidence(user_data, nonce))
        return recorded[0]

    issuer = HashIssuer(record)
    assert await bed.say(issuer=issuer)
    async with dial(bed, issuer) as connection:
        assert (await status_of(connection.channel()))[0] is grpc.StatusCode.UNAUTHENTICATED
    assert len(bed.seen) == 1


async def test_a_judge_that_breaks_has_not_said_yes(bed: Bed) -> None:
    """An error of our own is a refusal with the same text; the log says INTERNAL."""

    def explode(*_rest: object, **__: object) -> None:
        raise ZeroDivisionError

    bed.validator.validate = explode  # type: ignore[method-assign]
    assert await rejection(bed, honest_evidence) == (grpc.StatusCode.UNAUTHENTICATED, "attestation refused")
    assert bed.events.reasons("peer_rejected") == ["INTERNAL"]


async def test_evidence_of_another_kind_hears_the_same(bed: Bed) -> None:
    """An extension under another OID is no evidence."""
    async with dial(bed, HashIssuer(oid="1.3.9900.2.1")) as connection:
        assert await status_of(connection.channel()) == (grpc.StatusCode.UNAUTHENTICATED, "attestation refused")
    assert bed.events.reasons("peer_rejected") == ["EVIDENCE_MISSING"]
    assert bed.validator.calls == []


async def test_a_rejection_is_never_early() -> None:
    """The floor counts from the first byte, so that a quick cause looks like a slow one."""
    limits = Limits(rejection_floor_seconds=0.3)
    async with running_bed(limits=limits) as bed:
        begun = time.monotonic()
        await rejection(bed, lambda *_rest: b"nonsense")
        assert time.monotonic() - begun >= 0.3


async def test_a_rejected_peer_reaches_no_method(bed: Bed) -> None:
    """Neither a real path nor an invented one tells it anything else."""
    async with dial(bed, HashIssuer(lambda *_rest: b"x")) as connection:
        channel = connection.channel()
        heard = {await status_of(channel, path=path) for path in (ECHO, "/test.Echo/Nothing", "/x.Y/Z")}
    assert heard == {(grpc.StatusCode.UNAUTHENTICATED, "attestation refused")}


async def test_a_rejected_peer_is_cut_off() -> None:
    """It may not hold its connection longer than the limit says."""
    limits = Limits(rejection_floor_seconds=0.01, rejected_seconds=0.2)
    async with running_bed(limits=limits) as bed, dial(bed, HashIssuer(lambda *_rest: b"x")):
        await settled(lambda: bed.listener.unverified == 0)


async def test_a_client_without_certificate_is_refused_in_the_handshake(bed: Bed) -> None:
    """TLS itself says so; nothing of it reaches the service."""
    with pytest.raises(TransportError) as caught:
        async with connect(bed.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=None):
            pass
    assert "certificate required" in caught.value.message
    assert bed.events.reasons("connection_failed") == ["TLS_HANDSHAKE_FAILED"]


async def test_a_direct_caller_of_the_socket_is_unauthenticated(bed: Bed) -> None:
    """Who can open the service's socket has still not passed the relay."""
    async with grpc.aio.insecure_channel(f"unix:{bed.backend}") as channel:
        assert await status_of(channel) == (grpc.StatusCode.UNAUTHENTICATED, "attestation refused")
    assert bed.seen == []


# ---- who does not: services


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"pins": FOREIGN_PINS}, "JOIN_CA_MISMATCH", id="a foreign join CA"),
        pytest.param({"cluster_id": bytes(32)}, "JOIN_CLUSTER_MISMATCH", id="a service of another cluster"),
    ],
)
async def test_a_foreign_service_gets_no_evidence(bed: Bed, change: dict[str, Any], code: str) -> None:
    """The node decides before it makes any, and the service learns nothing but an alert."""
    issuer = HashIssuer()
    with pytest.raises(AttestedError) as caught:
        async with dial(bed, issuer, **change):
            pass
    assert (caught.value.code, issuer.calls) == (code, [])
    await settled(lambda: bed.events.reasons("connection_failed") == ["TLS_HANDSHAKE_FAILED"])


async def test_an_expired_service_gets_no_evidence(bed: Bed) -> None:
    """A key service that stopped renewing is told apart from a foreign one."""
    bed.credentials.append(expired_credentials(bed.ca))
    issuer = HashIssuer()
    with pytest.raises(TransportError) as caught:
        async with dial(bed, issuer):
            pass
    assert (caught.value.code, issuer.calls) == ("JOIN_CERTIFICATE_EXPIRED", [])


async def test_a_service_that_asks_for_no_evidence_is_refused() -> None:
    """Without its nonce there is nothing to bind evidence to."""
    async with running_bed(validator=None) as bed:
        issuer = HashIssuer()
        with pytest.raises(TransportError) as caught:
            async with dial(bed, issuer):
                pass
        assert (caught.value.code, issuer.calls) == ("NONCE_MALFORMED", [])


async def test_what_the_issuer_raises_comes_out(bed: Bed) -> None:
    """A TPM that fails is reported as itself, not as a TLS problem."""

    def fail(*_rest: bytes) -> bytes:
        raise LookupError("no TPM")

    with pytest.raises(LookupError, match="no TPM"):
        async with dial(bed, HashIssuer(fail)):
            pass


async def test_a_stopped_service_is_worth_another_try(bed: Bed) -> None:
    """Nobody listens: retryable; and the same endpoint works again afterwards."""
    await bed.listener.stop()
    with pytest.raises(TransportError) as caught:
        await bed.say()
    assert (caught.value.code, caught.value.retryable) == ("PEER_UNREACHABLE", True)


async def test_a_service_behind_the_relay_that_is_down_is_worth_another_try() -> None:
    """The relay closes; the peer has shown good evidence and is not told that it was refused."""
    async with running_bed() as bed:
        bed.backend.unlink()
        with pytest.raises(TransportError) as caught:
            await bed.say()
        assert (caught.value.code, caught.value.retryable) == ("CONNECTION_CLOSED", True)
        assert bed.events.reasons("connection_failed") == ["BACKEND_UNREACHABLE"]
        assert len(bed.registry) == 0


async def test_too_many_attested_connections_are_closed_not_refused() -> None:
    """One more than the limit is told to come back."""
    async with running_bed(limits=Limits(served=1, reserved=0)) as bed, dial(bed) as first:
        with pytest.raises(TransportError) as caught:
            await bed.say()
        assert (caught.value.code, caught.value.retryable) == ("CONNECTION_CLOSED", True)
        assert await call(first.channel())


async def test_a_taken_port_is_named(bed: Bed) -> None:
    """The error says where and what to do, and nothing stays behind."""
    before = sorted(bed.directory.iterdir())
    second = Listener(
        backend_socket=bed.backend,
        registry=bed.registry,
        server_credentials=lambda: bed.credentials[0],
        validator=bed.validator,
        runtime_directory=bed.directory,
        limits=QUICK,
    )
    with pytest.raises(TransportError, match="PORT_UNAVAILABLE"):
        await second.start("127.0.0.1", bed.port)
    assert before == sorted(bed.directory.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("with blank", id="grpcio would spell it differently"),
        pytest.param("x" * 90, id="the kernel would cut it"),
    ],
)
async def test_an_unusable_directory_is_named(bed: Bed, name: str) -> None:
    """Else every call of a good machine would be refused, and nobody would know why."""
    directory = bed.directory / name
    directory.mkdir()
    with pytest.raises(SystemFault, match="FILE_UNUSABLE"):
        async with running_bed(runtime_directory=directory):
            pass
    assert list(directory.iterdir()) == []


# ---- what remains


async def test_nothing_remains(bed: Bed) -> None:
    """No claims, no slots, no socket names, after good, rejected and broken connections."""
    await bed.say()
    await rejection(bed, lambda *_rest: b"x")
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.port)
    writer.close()
    del reader
    await settled(lambda: (len(bed.registry), bed.listener.served, bed.listener.unverified) == (0, 0, 0))
    private = next(entry for entry in bed.directory.iterdir() if entry.name.startswith("atls-"))
    assert [entry.name for entry in private.iterdir()] == ["rejector"]
    assert private.stat().st_mode & 0o777 == 0o700
    await bed.listener.stop()
    assert [entry.name for entry in bed.directory.iterdir()] == ["backend"]


async def test_stop_lets_running_calls_end() -> None:
    """Open connections get the grace; then they are closed and the client knows."""
    async with running_bed() as bed, dial(bed) as connection:
        stopping = asyncio.create_task(bed.listener.stop(grace_seconds=2))
        await asyncio.sleep(0.1)
        assert await call(connection.channel())
        await stopping
        assert (await status_of(connection.channel()))[0] is grpc.StatusCode.UNAVAILABLE
