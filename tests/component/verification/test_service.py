# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verification service of a node with a real TPM, over real sockets: good callers, relays, diversions, floods."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import judge
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import (
    call,
    fetch_testimony,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import (
    IDENTIFY,
    TESTIFY,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_service import (
    VerificationNetworkSide,
    VerificationServiceConfig,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Facts
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import UnknownServer
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import open_connection
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Health
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.replay import replay
from ansible_collections.attested.kubernetes.tests.support.verification import NodeBed, lock_log, question, running_node
from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm, SwtpmFactory

PLENTY = {"questions_per_second": 1000.0, "question_burst": 1000, "quotes_per_second": 1000.0, "quote_burst": 1000}


@dataclass(slots=True)
class Machine:
    """A real TPM that has booted and is locked; opened anew for each answer, as on a node."""

    swtpm: Swtpm
    opened: Opened
    logs: EventLogs

    @contextmanager
    def attester(self) -> Iterator[Attester]:
        with self.opened(self.swtpm) as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    def facts(self) -> Facts:
        return Facts(cluster_id=CLUSTER_ID, logs=self.logs)

    def policy(self, name: str = "w-1", boot: str = "deb13-base") -> SitePolicy:
        with self.attester() as one:
            return SitePolicy(profiles=[learned(boots.load(boot))], identities=[identity_of(one.ek, name)])

    def running(self, **settings: Any) -> Any:
        return running_node(self.attester, self.facts, **{**PLENTY, **settings})


@pytest.fixture
def booted(swtpms: Callable[..., Swtpm], opened: Opened) -> Callable[..., Machine]:
    """Boot and lock machines; another letter is another TPM."""

    def boot(letter: str = "a", name: str = "deb13-base") -> Machine:
        recorded, swtpm = boots.load(name), swtpms(letter)
        with opened(swtpm) as tpm:
            replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
            tpm.pcr_event(15, CLUSTER_ID)
        return Machine(swtpm, opened, logs_of(recorded, nodelock=lock_log(CLUSTER_ID)))

    return boot


@pytest.fixture
def machine(booted: Callable[..., Machine]) -> Machine:
    return booted()


async def verified(endpoint: str, asked: Question, *, node: str = "w-1") -> VerifiedNode:
    """Return the node at ``endpoint``, judged, as the fleet judges each of its nodes."""
    return judge(await fetch_testimony(endpoint, asked), asked, node=node)


async def code_of(bed: NodeBed | str, asked: Any, node: str = "w-1") -> str:
    endpoint = bed if isinstance(bed, str) else bed.endpoint
    with pytest.raises(AttestedError) as caught:
        await verified(endpoint, asked, node=node)
    return caught.value.code


async def test_a_good_node_is_verified_over_the_network(machine: Machine, manufactured: SwtpmFactory) -> None:
    roots = [x509.load_pem_x509_certificate(path.read_bytes()) for path in _authorities(manufactured)]
    asked = question(machine.policy(), demands=Demands(ek_roots=tuple(roots)))
    async with machine.running() as bed:
        found = await verified(bed.endpoint, asked)
        again = await verified(bed.endpoint, asked)
    assert (found.verdict.profile, found.machine.ek_certified) == ("deb13-base", True)
    assert found.machine.binding != again.machine.binding


def _authorities(factory: SwtpmFactory) -> tuple[Path, Path]:
    return factory.authority.root, factory.authority.issuer


async def test_the_log_says_who_asked_what_under_one_id(machine: Machine) -> None:
    async with machine.running() as bed:
        await verified(bed.endpoint, question(machine.policy()))
        lines = [line for line in bed.lines() if line["event"] in {"call", "witness_testify"}]
    asked = next(line for line in lines if line.get("method") == TESTIFY)
    answered = next(line for line in lines if line["event"] == "witness_testify")
    assert asked["remote"].startswith("127.0.0.1:")
    assert asked["correlation_id"] == answered["correlation_id"]


async def test_another_boot_is_refused_with_register_and_event(machine: Machine) -> None:
    async with machine.running() as bed:
        assert await code_of(bed, question(machine.policy(boot="deb13-cmdline"))) == "PCR_MISMATCH"


async def test_after_a_reset_the_lock_is_gone(machine: Machine) -> None:
    async with machine.running() as bed:
        machine.swtpm.reset()
        with machine.opened(machine.swtpm) as tpm:
            recorded = boots.load("deb13-base")
            replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
        machine.logs = logs_of(boots.load("deb13-base"))
        assert await code_of(bed, question(machine.policy())) == "NODELOCK_OPEN"


# ---- somebody in between


class Relay:
    """Asks the genuine node what its own caller asks, over its own connection: a proxy that ends TLS."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.asked = 0

    async def identity(self, *, correlation_id: str) -> bytes:
        return await self._pass_on(IDENTIFY, b"")

    async def testimony(self, challenge: bytes, **known: Any) -> bytes:
        self.asked += 1
        return await self._pass_on(TESTIFY, challenge)

    async def _pass_on(self, method: str, request: bytes) -> bytes:
        async with open_connection(self.endpoint, check=UnknownServer(), issuer=None) as connection:
            return await call(connection, method, request)


@asynccontextmanager
async def relay_to(endpoint: str) -> AsyncIterator[tuple[str, Relay]]:
    """Run a relay in front of a node; yield where it listens."""
    relay, health = Relay(endpoint), Health(Notifier({}), version="relay", parts=())
    with tempfile.TemporaryDirectory(prefix="vr-") as name:  # pytest's own paths are too long for a socket
        config = VerificationServiceConfig(
            listen_address="127.0.0.1", listen_port=0, runtime_directory=Path(name), **PLENTY
        )
        front = VerificationNetworkSide(config, witness=relay, health=health, log=open_log(), clock=SystemClock())
        try:
            yield f"127.0.0.1:{await front.start()}", relay
        finally:
            await front.stop()


async def test_s2_evidence_relayed_over_another_channel_is_refused(machine: Machine) -> None:
    asked = question(machine.policy())
    async with machine.running() as bed, relay_to(bed.endpoint) as (where, relay):
        assert await code_of(where, asked) == "CHANNEL_NOT_BOUND"
        assert relay.asked == 1
        assert (await verified(bed.endpoint, asked)).verdict.profile == "deb13-base"


async def test_s3_a_caller_led_to_another_genuine_machine_refuses_it(booted: Callable[..., Machine]) -> None:
    """The same boot and a genuine TPM, but not the one that is enrolled; and one enrolled for another node."""
    ours, other = booted("a"), booted("b")
    async with other.running() as bed:
        assert await code_of(bed, question(ours.policy())) == "IDENTITY_UNKNOWN"
        assert await code_of(bed, question(other.policy(name="w-2"))) == "NODE_NAME_MISMATCH"


async def test_s1_an_answer_to_an_earlier_challenge_is_refused(machine: Machine) -> None:
    class Replaying(Relay):
        kept = b""

        async def testimony(self, challenge: bytes, **known: Any) -> bytes:
            Replaying.kept = Replaying.kept or await super().testimony(challenge, **known)
            return Replaying.kept

    async with machine.running() as bed, relay_to(bed.endpoint) as (where, relay):
        relay.__class__ = Replaying
        await code_of(where, question(machine.policy()))
        assert await code_of(where, question(machine.policy())) == "CHALLENGE_UNKNOWN"


# ---- strangers that ask too much


async def status_of(bed: NodeBed, method: str, request: bytes) -> str:
    async with open_connection(bed.endpoint, check=UnknownServer(), issuer=None) as connection:
        try:
            await connection.channel().unary_unary(method)(request, timeout=30)
        except Exception as error:  # noqa: BLE001 - grpc's own class has no stable base here
            return str(error.code().name)  # type: ignore[attr-defined]
    return "OK"


async def test_a_flood_of_one_address_is_put_off_after_its_burst(machine: Machine) -> None:
    async with machine.running(question_burst=4, questions_per_second=0.01) as bed:
        found = [await status_of(bed, IDENTIFY, b"") for _unused in range(12)]
        assert found == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"] * 8
        assert bed.reasons() == ["VERIFICATION_RATE"] * 8


async def test_callers_beyond_the_line_are_told_to_come_later(machine: Machine) -> None:
    """Twelve callers at once, two places: those that are served are verified, the others hear that it is busy."""
    asked = question(machine.policy())
    async with machine.running(waiting=2) as bed:
        found = await asyncio.gather(*(verified(bed.endpoint, asked) for _unused in range(12)), return_exceptions=True)
        busy = [one.code for one in found if isinstance(one, AttestedError)]
        assert len(busy) < 12
        assert set(busy) == {"VERIFICATION_LATER"}
        assert set(bed.reasons()) == {"VERIFICATION_BUSY"}


@pytest.mark.parametrize(
    ("method", "request_bytes", "status"),
    [
        pytest.param(TESTIFY, bytes(5000), "RESOURCE_EXHAUSTED", id="a request larger than any challenge"),
        pytest.param(TESTIFY, b"\xff" * 400, "INVALID_ARGUMENT", id="bytes that are no challenge"),
        pytest.param(IDENTIFY, b"\xff" * 40, "INVALID_ARGUMENT", id="bytes that are no question"),
        pytest.param("/attested.v1.Attestation/Challenge", b"", "UNIMPLEMENTED", id="a call of the join service"),
        pytest.param("/verify.API/GetAttestation", b"", "UNIMPLEMENTED", id="a call that is served without TLS only"),
    ],
)
async def test_what_is_no_verification_reaches_no_tpm(
    machine: Machine, method: str, request_bytes: bytes, status: str
) -> None:
    async with machine.running() as bed:
        assert await status_of(bed, method, request_bytes) == status
        assert [line for line in bed.lines() if line["event"] == "witness_testify" and line["outcome"] == "ok"] == []


async def test_a_node_whose_witness_is_away_says_so(machine: Machine) -> None:
    async with machine.running() as bed:
        (bed.directory / "witness.sock").unlink()
        assert await code_of(bed, question(machine.policy())) == "VERIFICATION_UNAVAILABLE"
        assert bed.reasons() == ["WITNESS_UNREACHABLE"]
        (bed.directory / "witness.sock").touch()  # the bed removes it


async def test_the_witness_hears_its_service_only(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 4711)  # so that the bed allows another user than this one
    async with machine.running() as bed:
        monkeypatch.undo()
        assert await code_of(bed, question(machine.policy())) == "VERIFICATION_UNANSWERED"
        assert bed.reasons() == ["CALLER_UNKNOWN"]
