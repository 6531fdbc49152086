# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bounds of the verification service: who may ask, how often, and how many wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Line
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services import verification_service
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_front import Proving
from ansible_collections.attested.kubernetes.plugins.module_utils.transport import claims as claims_module
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Call, Health
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

KEY = b"k" * 32


class RecordingWitness:
    """Answers everything, when it is let."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.troubles: list[AttestedError] = []

    async def identity(self, *, correlation_id: str) -> bytes:
        self.asked.append(("identity", correlation_id))
        for trouble in self.troubles:
            raise trouble
        return b"identity"

    async def testimony(self, challenge: bytes, **known: Any) -> bytes:
        self.asked.append((challenge, known))
        await self.open.wait()
        return b"testimony"


@pytest.fixture
def witness() -> RecordingWitness:
    return RecordingWitness()


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


def desk_of(witness: RecordingWitness, clock: SteppingClock, **settings: Any) -> Proving:
    config = verification_service.VerificationServiceConfig(**settings)
    return Proving(witness, verification_service.Gate(config, clock=clock), spki_sha256=KEY)


def come_from(remote: str) -> None:
    claims = claims_module.Claims(
        evidence=b"", peer_nonce=b"", spki_sha256=b"", exporter=b"e" * 32, remote=remote, accepted_at=0.0
    )
    claims_module._current.set(claims)


def call() -> Call:
    return Call(method="m", correlation_id="abc123", metadata={}, line=Line({}))


async def refused(asking: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        await asking
    return caught.value.code


async def test_a_challenge_goes_on_as_it_came_with_this_very_channel(
    witness: RecordingWitness, clock: SteppingClock
) -> None:
    come_from("192.0.2.7:4711")
    given = call()
    assert await desk_of(witness, clock).testify(b"\x00raw", given) == b"testimony"
    known = {"exporter": b"e" * 32, "spki_sha256": KEY, "source": "192.0.2.7", "correlation_id": "abc123"}
    assert witness.asked == [(b"\x00raw", known)]
    assert given.line.fields == {"remote": "192.0.2.7:4711"}


async def test_one_address_that_asks_too_often_is_put_off_and_the_others_are_not(
    witness: RecordingWitness, clock: SteppingClock
) -> None:
    desk = desk_of(witness, clock, question_burst=2, questions_per_second=1.0)
    come_from("192.0.2.7:1")
    await desk.identify(b"", call())
    await desk.testify(b"c", call())
    assert await refused(desk.testify(b"c", call())) == "VERIFICATION_RATE"
    assert await refused(desk.identify(b"", call())) == "VERIFICATION_RATE"
    come_from("[2001:db8::1]:1")
    await desk.identify(b"", call())
    come_from("192.0.2.7:2")
    clock.sleep(1.0)
    await desk.identify(b"", call())


async def test_the_addresses_of_one_ipv6_machine_are_one_source(
    witness: RecordingWitness, clock: SteppingClock
) -> None:
    desk = desk_of(witness, clock, question_burst=1)
    come_from("[2001:db8::1]:1")
    await desk.identify(b"", call())
    come_from("[2001:db8::2]:1")
    assert await refused(desk.identify(b"", call())) == "VERIFICATION_RATE"


async def test_many_addresses_together_do_not_wear_out_the_tpm(witness: RecordingWitness, clock: SteppingClock) -> None:
    desk = desk_of(witness, clock, quote_burst=4, quotes_per_second=2.0)
    codes = []
    for number in range(40):
        come_from(f"192.0.2.{number}:1")
        try:
            await desk.testify(b"c", call())
        except AttestedError as error:
            codes.append(error.code)
    assert codes == ["VERIFICATION_RATE"] * 36
    assert len(witness.asked) == 4
    clock.sleep(0.5)
    await desk.testify(b"c", call())


async def test_the_line_for_the_tpm_is_short_and_moves_on(witness: RecordingWitness, clock: SteppingClock) -> None:
    desk = desk_of(witness, clock, waiting=2)
    come_from("192.0.2.7:1")
    witness.open.clear()
    standing = [asyncio.ensure_future(desk.testify(b"c", call())) for _unused in range(2)]
    await asyncio.sleep(0)
    assert await refused(desk.testify(b"c", call())) == "VERIFICATION_BUSY"
    witness.open.set()
    assert await asyncio.gather(*standing) == [b"testimony"] * 2
    assert await desk.testify(b"c", call()) == b"testimony"


async def test_a_caller_that_leaves_gives_its_place_back(witness: RecordingWitness, clock: SteppingClock) -> None:
    desk = desk_of(witness, clock, waiting=1)
    come_from("192.0.2.7:1")
    witness.open.clear()
    standing = asyncio.ensure_future(desk.testify(b"c", call()))
    await asyncio.sleep(0)
    standing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await standing
    witness.open.set()
    assert await desk.testify(b"c", call()) == b"testimony"


async def test_bytes_that_are_no_question_go_no_further(witness: RecordingWitness, clock: SteppingClock) -> None:
    come_from("192.0.2.7:1")
    assert await refused(desk_of(witness, clock).identify(b"\xff\xff", call())) == "MESSAGE_MALFORMED"
    assert witness.asked == []


async def test_the_service_says_when_its_witness_is_away(witness: RecordingWitness) -> None:
    health = Health(Notifier({}), version="1", parts=("witness",))
    witness.troubles = [SystemFault("expected the witness, got none", reason=Reason.WITNESS_UNREACHABLE)]
    watching = asyncio.ensure_future(verification_service.watch(witness, health))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "WITNESS_UNREACHABLE" in health.sentence
    watching.cancel()
    witness.troubles = []
    again = asyncio.ensure_future(verification_service.watch(witness, health))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert health.is_serving
    again.cancel()
