# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S51: who names a key that he does not have, or a thousand that nobody knows, to make the key service work for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Line
from ansible_collections.attested.kubernetes.plugins.module_utils.core.rate import TokenBuckets
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_service import Relay
from ansible_collections.attested.kubernetes.plugins.module_utils.transport import claims as claims_module
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Call
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S51",
    title="Work for who has proven nothing",
    case="CWE-400",
    bed="bytes",
    stops=(
        ("keyservice/releaser.py", "ACTIVATION_NOT_PROVEN"),
        ("keyservice/cached_policy.py", "IDENTITY_UNKNOWN_RATE"),
        ("evidence/challenge.py", "CHALLENGES_EXHAUSTED"),
        ("services/join_service.py", "CHALLENGE_RATE"),
    ),
)

MANY = 1024
SECONDS = 20


@pytest.fixture
def made() -> Bed:
    """The decisions of a key service in this process, and one enrolled machine."""
    return Bed()


def unproven(call: tuple[Any, bytes, bytes]) -> tuple[Any, bytes, bytes]:
    """Return a call as somebody makes it who has only seen the machine's public key."""
    channel, request, binding = call
    return channel, request, replace(BoundEvidence.parse(binding), proof=b"p" * 32).to_bytes()


def reads(made: Bed) -> list[str]:
    """Return the list into which every question to the API goes from now on."""
    asked: list[str] = []
    for name in ("object", "objects", "revision"):
        real = getattr(made.gateway, name)

        def noted(plural: str, *args: Any, real: Any = real, **options: Any) -> Any:
            asked.append(plural)
            return real(plural, *args, **options)

        setattr(made.gateway, name, noted)
    return asked


def tried(made: Bed, kind: str) -> Callable[..., Any]:
    """Return the call of ``kind``."""
    return made.releaser.release if kind == "release" else made.reattester().reattest


@pytest.mark.parametrize("kind", ["release", "reattest"])
def test_without_the_proof_nothing_is_read(made: Bed, kind: str) -> None:
    made.join()
    good = made.exchange() if kind == "release" else made.push()
    other = made.exchange() if kind == "release" else made.push()
    assert tried(made, kind)(*good, note=made.notes.update).node_name == "w-1"
    asked = reads(made)
    assert code_of(lambda: tried(made, kind)(*unproven(other), note=made.notes.update)) == "ACTIVATION_NOT_PROVEN"
    assert asked == []


def test_without_the_proof_the_machines_lock_is_not_taken(made: Bed) -> None:
    """While the machine itself is served, a stranger's call for its key is refused and waits for nothing."""
    good, stranger = made.exchange(), unproven(made.exchange())
    with ThreadPoolExecutor(1) as pool, made.releaser._machines.held(made.identity.ek_sha256):
        refusal = pool.submit(made.releaser.release, *stranger, note=made.notes.update).exception(timeout=SECONDS)
    assert isinstance(refusal, AttestedError)
    assert refusal.code == "ACTIVATION_NOT_PROVEN"
    assert made.release(*good).node_name == "w-1"


def proven_unknown(made: Bed) -> tuple[Any, bytes, bytes]:
    """Return a good call by another TPM of software, with the proof of its key, that nobody has enrolled."""
    enrolled, made.tpm = made.tpm, SoftTpm(made.boot.pcrs)
    try:
        return made.exchange()
    finally:
        made.tpm = enrolled


def test_the_api_is_asked_about_unknown_machines_at_a_bounded_rate(made: Bed) -> None:
    """One address after another; an enrolled machine is not counted, and a moment later more may be asked."""
    made.watch()
    codes = []
    for number in range(80):
        channel, request, binding = proven_unknown(made)
        call = (replace(channel, source=f"192.0.2.{number}"), request, binding)
        codes.append(code_of(lambda call=call: made.releaser.release(*call, note=made.notes.update)))
    assert codes[:64] == ["IDENTITY_NODE_TAKEN"] * 64
    assert codes[64:] == ["IDENTITY_UNKNOWN_RATE"] * 16
    assert made.release().node_name == "w-1"
    made.clock.sleep(1)
    assert code_of(lambda: made.releaser.release(*proven_unknown(made), note=dict)) == "IDENTITY_NODE_TAKEN"


def test_one_address_has_a_smaller_rate_of_its_own(made: Bed) -> None:
    """So that another one's unknown machines are asked about meanwhile."""
    made.watch()
    calls = [proven_unknown(made) for _unused in range(17)]
    codes = [code_of(lambda call=call: made.releaser.release(*call, note=made.notes.update)) for call in calls]
    assert codes == ["IDENTITY_NODE_TAKEN"] * 16 + ["IDENTITY_UNKNOWN_RATE"]
    channel, request, binding = proven_unknown(made)
    other = (replace(channel, source="192.0.2.7"), request, binding)
    assert code_of(lambda: made.releaser.release(*other, note=made.notes.update)) == "IDENTITY_NODE_TAKEN"


def challenged(made: Bed, source: str, service: Any) -> str:
    """Ask for a challenge from ``source``, as the join service passes it on; return "" or the refusal's code."""
    asked = ChallengeRequest(ek_public=made.tpm.ek.public, ak_public=made.tpm.ak.public)
    message = message_class(REQUEST)(correlation_id="c-1")
    message.challenge.channel.source = source
    message.challenge.request = asked.to_bytes()
    try:
        answer_of(service.answer(message.SerializeToString()))
    except AttestedError as error:
        return error.code
    return ""


def test_one_address_fills_the_store_of_challenges_with_its_own(made: Bed) -> None:
    """Its next one is refused; a machine at another address gets a challenge and its ticket."""
    service = made.service()
    assert {challenged(made, "192.0.2.7", service) for _unused in range(MANY)} == {""}
    assert challenged(made, "192.0.2.7", service) == "CHALLENGES_EXHAUSTED"
    assert challenged(made, "198.51.100.1", service) == ""
    assert made.release().node_name == "w-1"


class Challenging:
    """Answers challenges."""

    async def challenge(self, *_unused: Any, **_named: Any) -> bytes:
        """Answer."""
        return b"a challenge"


async def test_a_network_of_addresses_is_one_source() -> None:
    """Whoever has a /64 has 2^64 addresses; the next network is another source."""
    rate = TokenBuckets(rate=0.001, burst=2, clock=SystemClock())
    relay: Any = Relay(Challenging(), rate)  # type: ignore[arg-type]

    async def ask(remote: str) -> bytes:
        claims = claims_module.Claims(
            evidence=b"", peer_nonce=b"", spki_sha256=b"", exporter=b"", remote=remote, accepted_at=0.0
        )
        claims_module._current.set(claims)
        given: bytes = await relay.challenge(b"x", Call(method="", correlation_id="", metadata={}, line=Line({})))
        return given

    assert await ask("[2001:db8:1:2::1]:5000") == b"a challenge"
    assert await ask("[2001:db8:1:2::2]:5000") == b"a challenge"
    with pytest.raises(AttestedError) as caught:
        await ask("[2001:db8:1:2:ffff::3]:5000")
    assert caught.value.code == "CHALLENGE_RATE"
    assert await ask("[2001:db8:1:3::1]:5000") == b"a challenge"
