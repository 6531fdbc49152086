# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay of the join service: bytes in, bytes out, and nothing without a bound quote."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Line, open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.rate import TokenBuckets
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import (
    make_join_ca,
    sign_server_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import Channel, TicketAnswer
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services import join_service
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import BINDING_METADATA
from ansible_collections.attested.kubernetes.plugins.module_utils.transport import claims as claims_module
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Call, Health
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import (
    JoinCaPins,
    verify_service_certificate,
)

CLAIMS = claims_module.Claims(
    evidence=b"E1",
    peer_nonce=b"n" * 32,
    spki_sha256=b"k" * 32,
    exporter=b"e" * 32,
    remote="192.0.2.7:4711",
    accepted_at=0.0,
)
KNOWN = Channel(exporter=b"e" * 32, spki_sha256=b"k" * 32, peer_nonce=b"n" * 32, evidence=b"E1", source="192.0.2.7")


class StandingClock:
    """Time that only passes by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 21, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class RecordingKeys:
    """A key service that answers everything and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def challenge(self, channel: Channel, request: bytes, *, correlation_id: str) -> bytes:
        self.asked.append((channel, request, correlation_id))
        return b"a challenge"

    async def release(self, channel: Channel, request: bytes, binding: bytes, *, correlation_id: str) -> TicketAnswer:
        self.asked.append((channel, request, binding, correlation_id))
        return TicketAnswer(ticket=b"a ticket", signature=b"signed", node_name="w-1")


@pytest.fixture
def keys() -> RecordingKeys:
    return RecordingKeys()


@pytest.fixture
def relay(keys: RecordingKeys) -> join_service.Relay:
    claims_module._current.set(CLAIMS)
    return join_service.Relay(keys, TokenBuckets(rate=1.0, burst=2, clock=StandingClock()))  # type: ignore[arg-type]


def call(**metadata: str | bytes) -> Call:
    return Call(method="m", correlation_id="abc123", metadata=metadata, line=Line({}))


async def test_a_challenge_goes_on_as_it_came(relay: join_service.Relay, keys: RecordingKeys) -> None:
    claims_module._current.set(CLAIMS)
    given = call()
    assert await relay.challenge(b"\x00raw", given) == b"a challenge"
    assert keys.asked == [(KNOWN, b"\x00raw", "abc123")]
    assert given.line.fields == {"remote": "192.0.2.7:4711"}


async def test_a_request_goes_on_as_it_came_with_its_bound_quote(
    relay: join_service.Relay, keys: RecordingKeys
) -> None:
    claims_module._current.set(CLAIMS)
    given = call(**{BINDING_METADATA: b"\x00bound"})
    answer = message_class("join.IssueJoinTicketResponse").FromString(await relay.issue_join_ticket(b"\xffraw", given))
    assert keys.asked == [(KNOWN, b"\xffraw", b"\x00bound", "abc123")]
    assert (answer.ticket, answer.ticket_signature) == (b"a ticket", b"signed")
    assert [field.number for field, _unused in answer.ListFields()] == [1000, 1001]
    assert given.line.fields["node"] == "w-1"


@pytest.mark.parametrize(
    "metadata", [pytest.param({}, id="none"), pytest.param({BINDING_METADATA: "text"}, id="text instead of bytes")]
)
async def test_a_request_without_its_bound_quote_is_refused(
    relay: join_service.Relay, keys: RecordingKeys, metadata: dict[str, Any]
) -> None:
    claims_module._current.set(CLAIMS)
    with pytest.raises(AttestedError) as caught:
        await relay.issue_join_ticket(b"raw", call(**metadata))
    assert caught.value.code == "BINDING_MISSING"
    assert keys.asked == []


async def test_one_address_that_asks_too_often_is_put_off(relay: join_service.Relay, keys: RecordingKeys) -> None:
    claims_module._current.set(CLAIMS)
    await relay.challenge(b"raw", call())
    await relay.challenge(b"raw", call())
    with pytest.raises(AttestedError) as caught:
        await relay.challenge(b"raw", call())
    assert (caught.value.code, caught.value.retry_after_seconds) == ("CHALLENGE_RATE", 1.0)
    assert len(keys.asked) == 2


def test_a_bucket_fills_again_and_is_one_sources_alone() -> None:
    clock = StandingClock()
    buckets = TokenBuckets(rate=2.0, burst=1, clock=clock)
    buckets.take("a")
    buckets.take("b")
    with pytest.raises(AttestedError):
        buckets.take("a")
    clock.sleep(0.5)
    buckets.take("a")
    with pytest.raises(AttestedError):
        buckets.take("a")


def test_the_number_of_buckets_is_bounded() -> None:
    buckets = TokenBuckets(rate=1.0, burst=1, clock=StandingClock())
    for number in range(10_000):
        buckets.take(f"source-{number}")
    assert len(buckets._buckets) == 4096


class SlowKeys:
    """A key service that is away at first, and then signs with a real join CA."""

    def __init__(self, *, away: int) -> None:
        self.away = away
        self.ca = make_join_ca("prod", now=datetime.now(UTC))

    async def server_certificate(self, request: bytes, *, correlation_id: str) -> bytes:
        if self.away:
            self.away -= 1
            raise KeyServiceError("expected the key service", reason=Reason.KEY_SERVICE_UNREACHABLE)
        return sign_server_certificate(request, ca=self.ca, cluster_id=b"c" * 32, now=datetime.now(UTC))


async def test_the_certificate_is_asked_for_until_the_key_service_answers() -> None:
    health = Health(Notifier({}), version="1", parts=("certificate",))
    keys: Any = SlowKeys(away=2)
    identity = join_service.ServerIdentity(keys, health=health, log=open_log(), retry_seconds=0.01)
    with pytest.raises(AttestedError) as caught:
        identity.current()
    assert caught.value.code == "KEY_SERVICE_UNREACHABLE"
    keeping = asyncio.create_task(identity.keep())
    await asyncio.wait_for(identity.obtained.wait(), timeout=10)
    keeping.cancel()
    assert keys.away == 0
    assert health.is_serving
    leaf = identity.current().chain[0]
    pins = JoinCaPins.from_pem(keys.ca.certificate)
    verify_service_certificate(leaf, pins=pins, cluster_id=b"c" * 32, now=datetime.now(UTC))


class LaterClock(SystemClock):
    """The clock of a machine on which some time has passed."""

    def __init__(self) -> None:
        self.later = timedelta()

    def now(self) -> datetime:
        return super().now() + self.later


async def test_a_certificate_is_renewed_by_the_clock_of_the_wall() -> None:
    """A third of its life after it was made, however much of that the machine was asleep."""
    health, clock = Health(Notifier({}), version="1", parts=("certificate",)), LaterClock()
    keys: Any = SlowKeys(away=0)
    identity = join_service.ServerIdentity(keys, health=health, log=open_log(), clock=clock)
    await identity.renew()
    first = identity.current().chain[0]
    clock.later = timedelta(minutes=39)
    assert await identity.renew() == 30.0
    assert identity.current().chain[0] == first
    clock.later = timedelta(minutes=41)
    keys.away = 1
    assert await identity.renew() == 2.0
    assert identity.current().chain[0] == first
    assert not health.is_serving
    assert await identity.renew() == 30.0
    assert identity.current().chain[0] != first
    assert health.is_serving


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_program_describes_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        join_service.main([word])
    assert caught.value.code == 0
    assert "attested-join-service" in capsys.readouterr().out


def test_the_program_names_a_configuration_that_is_not_there(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert join_service.main(["--config", str(tmp_path / "none.yml")]) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err
