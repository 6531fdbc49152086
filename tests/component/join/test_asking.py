# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One round of asking over real sockets: every address by itself, strangers among them, and clocks that are wrong."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.node.client import JoinTickets
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import (
    DoorkeeperValidator,
    OccasionalAttester,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    JoinConfig,
    JoinMachine,
    fetch_ticket,
    first_answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_endpoints import Targets
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import first_window
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect, parse_endpoint
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    Bed,
    HashIssuer,
    call,
    running_bed,
    service_credentials,
    settled,
)
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CONFIG
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

ORDERS = range(4)


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    """A service of the cluster on 127.0.0.1."""
    async with running_bed() as running:
        yield running


class Names:
    """DNS of a test: a name with these addresses; none of them counts as this machine's own."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    def addresses(self, host: str) -> tuple[str, ...]:
        """Answer every name alike."""
        if not self._addresses:
            raise TransportError(f"expected addresses of {host}, got: none", reason=Reason.PEER_UNREACHABLE)
        return self._addresses

    def is_own(self, address: str) -> bool:
        """Say no: the services of this test stand on this machine."""
        del address
        return False


class WrongClock(SystemClock):
    """The machine's clock, off by a time."""

    def __init__(self, off: timedelta) -> None:
        self._off = off

    def now(self) -> datetime:
        """Tell the wrong time."""
        return datetime.now(UTC) + self._off


def targets(*endpoints: str, names: Names, seed: int) -> Targets:
    return Targets(
        endpoints=endpoints, own=frozenset(), parse=parse_endpoint, resolver=names, random=SeededRandom(seed)
    )


async def ask_round(around: Targets, pins: JoinCaPins, tried: list[str] | None = None) -> tuple[str, bytes]:
    """Ask as `fetch_ticket` does, with evidence that needs no TPM; return who answered, and what."""

    async def attempt(target: str) -> bytes:
        async with connect(
            target, pins=pins, cluster_id=CLUSTER_ID, issuer=HashIssuer(), timeout_seconds=5
        ) as connection:
            return (await call(connection.channel(), b"ticket?")).removeprefix(connection.exporter)

    def note(where: str, error: AttestedError | None) -> None:
        if tried is not None:
            tried.append(f"{where} {error.code if error else 'answered'}")

    target, answer = await asyncio.to_thread(first_answer, around, attempt, release=lambda: None, tried=note)
    return str(target), answer


@pytest.mark.parametrize("seed", ORDERS)
async def test_each_address_of_a_name_is_tried_until_one_answers(bed: Bed, seed: int) -> None:
    """Behind the name are a machine where nobody listens, and the service; the port is kept for both."""
    around = targets(f"join.example:{bed.port}", names=Names("127.0.0.2", "127.0.0.1"), seed=seed)
    assert await ask_round(around, bed.pins) == (f"join.example:{bed.port} at 127.0.0.1:{bed.port}", b"ticket?")


async def test_who_answered_is_asked_first_the_next_time(bed: Bed) -> None:
    """Nobody loses a time-out on a dead address twice."""
    around = targets(f"join.example:{bed.port}", names=Names("127.0.0.2", "127.0.0.1", "127.0.0.3"), seed=1)
    await ask_round(around, bed.pins)
    for _unused in ORDERS:
        tried: list[str] = []
        await ask_round(around, bed.pins, tried)
        assert tried == [f"join.example:{bed.port} at 127.0.0.1:{bed.port} answered"]


@pytest.mark.parametrize("seed", ORDERS)
async def test_a_silent_endpoint_costs_its_own_time_only(bed: Bed, seed: int) -> None:
    """It takes the connection and says nothing; a proxy beside it speaks HTML; the service still answers."""

    async def silent(_reader: Any, writer: Any) -> None:
        await asyncio.sleep(30)
        writer.close()

    async def proxy(_reader: Any, writer: Any) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")
        writer.close()

    beside = [await asyncio.start_server(handler, "127.0.0.1", 0) for handler in (silent, proxy)]
    ports = [server.sockets[0].getsockname()[1] for server in beside]
    try:
        around = targets(*(f"127.0.0.1:{port}" for port in (*ports, bed.port)), names=Names(), seed=seed)
        assert (await ask_round(around, bed.pins))[1] == b"ticket?"
    finally:
        for server in beside:
            server.close()


async def test_a_stranger_cannot_end_the_asking(bed: Bed) -> None:
    """Whatever answers at an address without the join CA, the error that is left is one that is tried again."""
    foreign = JoinCaPins.from_pem(make_join_ca("test", now=datetime.now(UTC)).certificate)
    around = targets(f"127.0.0.1:{bed.port}", "gone.example:9090", "127.0.0.2:1", names=Names(), seed=1)
    with pytest.raises(AttestedError) as caught:
        await ask_round(around, foreign)
    said = caught.value.message
    assert caught.value.code == "JOIN_CA_MISMATCH"
    assert "gone.example:9090 PEER_UNREACHABLE: none" in said
    assert "127.0.0.2:1 PEER_UNREACHABLE: Connection refused" in said
    assert first_window(caught.value) is not None


@pytest.mark.parametrize("off", [timedelta(hours=1), timedelta(hours=-1)])
async def test_a_clock_that_is_an_hour_off_does_not_keep_a_machine_from_its_service(bed: Bed, off: timedelta) -> None:
    """Both certificates leave room, and the evidence holds a nonce and no date."""
    issuer = HashIssuer()
    async with connect(
        bed.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=issuer, clock=WrongClock(off)
    ) as connection:
        assert await call(connection.channel(), b"x") == connection.exporter + b"x"
    assert len(issuer.calls) == 1


@pytest.mark.parametrize(
    ("off", "code"),
    [
        pytest.param(timedelta(days=-365), "CLOCK_SKEW", id="a year behind"),
        pytest.param(timedelta(days=365), "JOIN_CERTIFICATE_EXPIRED", id="a year ahead"),
    ],
)
async def test_a_clock_that_is_a_year_off_is_named_before_any_evidence(bed: Bed, off: timedelta, code: str) -> None:
    """With both times; the next try, with the right clock, is served."""
    issuer, clock = HashIssuer(), WrongClock(off)
    with pytest.raises(TransportError) as caught:
        async with connect(bed.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=issuer, clock=clock):
            pass
    assert (caught.value.code, issuer.calls) == (code, [])
    assert f"{clock.now():%Y-%m-%dT%H}" in caught.value.message
    assert f"from {datetime.now(UTC) - timedelta(hours=2):%Y-%m-%dT}" in caught.value.message
    await settled(lambda: bed.events.reasons("connection_failed") == ["TLS_HANDSHAKE_FAILED"])
    assert (await ask_round(targets(bed.endpoint, names=Names(), seed=1), bed.pins))[1] == b"ticket?"


class Machine:
    """A machine with a real TPM, and a count of how often it was opened."""

    def __init__(self, tpm: Swtpm, opened: Opened) -> None:
        self._tpm = tpm
        self._opened = opened
        self.times = 0

    @contextmanager
    def opening(self) -> Iterator[Tpm]:
        """Open the TPM, at once or not at all."""
        self.times += 1
        with self._opened(self._tpm, timeout_seconds=5) as tpm:
            yield tpm

    async def fetch(self, *endpoints: str, pins: JoinCaPins) -> None:
        """Ask these endpoints for a ticket; raises what `fetch_ticket` raises."""
        config = JoinConfig(endpoints=endpoints, pins=pins, cluster_id=CLUSTER_ID, node_name="w-1")
        machine = JoinMachine(
            attester=OccasionalAttester(self.opening),
            read_logs=lambda: EventLogs(firmware=b"", userspace=b"", nodelock=b""),
            store=TicketStore(),
            clock=SystemClock(),
            resolver=Names(),
            random=SeededRandom(1),
        )
        await asyncio.to_thread(fetch_ticket, config, machine)


@pytest.fixture
def real(swtpm: Swtpm, opened: Opened) -> Machine:
    return Machine(swtpm, opened)


async def test_while_a_door_is_silent_others_have_the_tpm(real: Machine, bed: Bed) -> None:
    """An init beside the join client must not wait for a cluster that is not there."""
    came, enough = asyncio.Event(), asyncio.Event()

    async def silent(_reader: Any, writer: Any) -> None:
        came.set()
        await enough.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    asking = asyncio.create_task(real.fetch(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", pins=bed.pins))
    await came.wait()
    with real.opening():
        enough.set()
    with pytest.raises(AttestedError) as caught:
        await asking
    server.close()
    assert (caught.value.code, real.times) == ("CONNECTION_CLOSED", 1)


async def test_the_tpm_is_opened_for_a_service_of_the_cluster_and_given_back(real: Machine, bed: Bed) -> None:
    """Nobody and a stranger get no quote; the service of the bed refuses every real one."""
    foreign = service_credentials(make_join_ca("test", now=datetime.now(UTC)))
    async with running_bed(server_credentials=lambda: foreign) as stranger:
        with pytest.raises(AttestedError) as caught:
            await real.fetch("127.0.0.1:1", stranger.endpoint, bed.endpoint, pins=bed.pins)
    assert (caught.value.code, real.times) == ("TICKET_REFUSED", 1)
    assert "PEER_UNREACHABLE" in caught.value.message
    assert "JOIN_CA_MISMATCH" in caught.value.message
    assert len(bed.validator.calls) == 1
    with real.opening():
        pass


async def test_evidence_of_a_tpm_that_was_opened_for_it_is_good(real: Machine) -> None:
    """A judge of real quotes lets the machine in; the service behind it knows no challenges, which ends the asking."""
    async with running_bed(validator=DoorkeeperValidator()) as service:
        with pytest.raises(AttestedError) as caught:
            await real.fetch(service.endpoint, pins=service.pins)
        assert service.events.reasons("peer_rejected") == []
    assert (caught.value.code, real.times) == ("JOIN_REQUEST_NOT_UNDERSTOOD", 1)


async def test_a_tpm_in_use_is_told_as_such(real: Machine, bed: Bed) -> None:
    """It is this machine's own fault, and it passes."""
    with real.opening(), pytest.raises(AttestedError) as caught:
        await real.fetch(bed.endpoint, pins=bed.pins)
    assert caught.value.code == "TPM_BUSY"
    assert first_window(caught.value) == 1.0


def tickets(bed: Bed, machine: Machine) -> JoinTickets:
    """Return the tickets of a node whose only endpoint is a port where nobody listens."""
    config = replace(CONFIG, endpoints=(("127.0.0.1", 1),), join_ca=bed.ca.certificate)
    return JoinTickets(config, None, store=TicketStore(), handle=None, opened=machine.opening)


async def test_a_node_looks_at_its_keys_once_and_then_waits_without_the_tpm(real: Machine, bed: Bed) -> None:
    asking = tickets(bed, real)
    for _unused in range(3):
        with pytest.raises(AttestedError) as caught:
            await asyncio.to_thread(asking.material, disk_id=None)
        assert (caught.value.code, real.times) == ("PEER_UNREACHABLE", 1)


async def test_a_machine_without_a_tpm_hears_it_before_it_waits_for_anybody(
    swtpm: Swtpm, opened: Opened, bed: Bed
) -> None:
    swtpm.stop()
    with pytest.raises(AttestedError) as caught:
        await asyncio.to_thread(tickets(bed, Machine(swtpm, opened)).material, disk_id=None)
    assert caught.value.code == "TPM_UNREACHABLE"
    assert first_window(caught.value) is None
