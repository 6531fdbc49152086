# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recovery over real sockets and TLS, real TPMs, a real key process and a disk that the real cryptsetup made."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services import recovery_client
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import call_unary, proven
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import (
    ClusterKeys,
    Outcome,
    Patience,
    Rescuer,
    State,
    recover,
    recover_all,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import Contender, Contest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import (
    RECOVER,
    RecoverySecrets,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import UnknownServer
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import open_connection
from ansible_collections.attested.kubernetes.tests.support import boots, recovery_node
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.memory import memory_holds
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import DISK, RecoveryBed, running
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import MasterRing
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

BOOT = "deb13-base"
Keys = tuple[JoinCa, KeyBundle]


@pytest.fixture
def machine_of(swtpms: Callable[..., Swtpm], opened: Opened) -> Callable[..., Any]:
    """Return the attester of a machine with a real TPM that has booted; another name is another TPM."""

    def boot(name: str = "a", *, recorded: str = BOOT) -> Any:
        swtpm, booted = swtpms(name), boots.load(recorded)
        with opened(swtpm) as tpm:
            replay(tpm, firmware=booted.firmware, userspace=booted.userspace)

        @contextmanager
        def attester() -> Iterator[Attester]:
            with opened(swtpm) as tpm:
                yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

        tcti[name] = swtpm.tcti
        return attester

    tcti: dict[str, str] = {}
    boot.tcti = tcti  # type: ignore[attr-defined]
    return boot


@pytest.fixture
def real(machine_of: Callable[..., Any], memory: Path, disk: Path, keys: Keys) -> RecoveryBed:
    """A locked node: TPM, key process and disk are real."""
    return RecoveryBed(memory, attester=machine_of(), device=disk, keys=keys)


@pytest.fixture
def soft(tmp_path: Path, keys: Keys) -> RecoveryBed:
    """A locked node for what goes on between processes: its TPM and its disk are in memory."""
    return RecoveryBed(tmp_path, keys=keys)


async def error_of(endpoint: str, bed: RecoveryBed, **changes: Any) -> AttestedError:
    disk = changes.pop("disk", DISK)
    with pytest.raises(AttestedError) as caught:
        await recover(bed.node(endpoint, disk=disk), bed.rescuer(**changes))
    return caught.value


def nothing_happened(bed: RecoveryBed) -> bool:
    return (bed.opening.opened, bed.contest.winner) == ([], None)


async def test_a_disk_is_opened_by_its_admin(real: RecoveryBed) -> None:
    async with running(real) as node:
        await recover(real.node(node.endpoint), real.rescuer())
    assert real.opening.opened == [real.right.disk_key.reveal()]
    assert real.contest.winner is Contender.RECOVERY
    assert os.listdir(real.directory / "memory") == []  # noqa: PTH208 - as below
    assert real.records.outcomes == ["given"]


async def test_a_wrong_key_is_told_before_anything_else_happens(real: RecoveryBed) -> None:
    wrong = replace(real.cluster, ring=with_another_secret(real.cluster.ring))
    async with running(real) as node:
        error = await error_of(node.endpoint, real, keys=wrong)
        assert error.code == "RECOVERY_KEY_WRONG"
        assert nothing_happened(real)
        await recover(real.node(node.endpoint), real.rescuer())
    assert real.records.outcomes == ["RECOVERY_KEY_WRONG", "given"]


def with_another_secret(ring: MasterRing) -> MasterRing:
    """Return a ring of the same cluster with another cluster's master secret: what it derives opens no disk here."""
    return replace(ring, versions=make_keys()[1].ring.versions)


# ---- machines that are not the one that is meant


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What of an admin's secrets was sealed for anybody."""
    seen: list[bytes] = []
    of_node = ClusterKeys.of_node

    def watched(self: ClusterKeys, disk: Any) -> RecoverySecrets:
        seen.append(disk.uuid.encode())
        return of_node(self, disk)

    monkeypatch.setattr(ClusterKeys, "of_node", watched)
    return seen


async def test_another_tpm_that_poses_as_the_node_gets_nothing(
    real: RecoveryBed, machine_of: Callable[..., Any], tmp_path: Path, sent: list[bytes], keys: Keys
) -> None:
    pretender = RecoveryBed(tmp_path, attester=machine_of("b"), keys=keys)
    sent.clear()  # making a bed derives its key
    async with running(pretender) as node:
        with pytest.raises(AttestedError) as caught:
            await recover(real.node(node.endpoint), real.rescuer())
    assert (caught.value.code, sent, pretender.records.told) == ("IDENTITY_UNKNOWN", [], [])


async def test_a_node_that_poses_as_another_one_gets_nothing(real: RecoveryBed, sent: list[bytes]) -> None:
    async with running(real) as node:
        error = await error_of(node.endpoint, real, name="w-2")
    assert (error.code, sent) == ("NODE_NAME_MISMATCH", [])


async def test_another_boot_gets_nothing(real: RecoveryBed, sent: list[bytes]) -> None:
    async with running(real) as node:
        error = await error_of(node.endpoint, real, boot=boots.load("deb13-cmdline"))
    assert (error.code, sent, nothing_happened(real)) == ("PCR_MISMATCH", [], True)


# ---- callers that are none


async def test_a_caller_without_a_certificate_hears_one_text(
    soft: RecoveryBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_client, "prove_admin", lambda *_known, **_more: b"")
    async with running(soft) as node:
        error = await error_of(node.endpoint, soft)
        reasons = node.reasons()
    assert (error.code, set(reasons)) == ("ADMIN_REQUEST_REFUSED", {"ADMIN_UNAUTHENTICATED"})
    assert "attestation refused" in error.message
    assert (nothing_happened(soft), soft.records.outcomes) == (True, ["ADMIN_UNAUTHENTICATED"])


async def test_a_foreign_certificate_hears_the_same_text(soft: RecoveryBed, tmp_path: Path) -> None:
    foreign = RecoveryBed(tmp_path, keys=make_keys()).admin
    async with running(soft) as node:
        error = await error_of(node.endpoint, soft, admin=foreign)
        reasons = node.reasons()
    assert (error.code, set(reasons)) == ("ADMIN_REQUEST_REFUSED", {"ADMIN_CERTIFICATE_UNTRUSTED"})
    assert "attestation refused" in error.message
    assert nothing_happened(soft)


async def test_the_master_secret_in_clear_is_not_taken(soft: RecoveryBed) -> None:
    """What Constellation's program sends."""
    message = message_class("recoverproto.RecoverMessage")(
        kms_uri="kms://cluster-kms?key=AA&salt=AA", storage_uri="storage://no-store"
    )
    async with (
        running(soft) as node,
        open_connection(node.endpoint, check=UnknownServer(), issuer=None) as connection,
    ):
        with pytest.raises(AttestedError):
            await call_unary(connection, RECOVER, message.SerializeToString())
        assert set(node.reasons()) == {"SECRETS_IN_CLEAR"}
    assert nothing_happened(soft)


async def test_too_much_is_refused_before_it_is_read(soft: RecoveryBed) -> None:
    async with (
        running(soft) as node,
        open_connection(node.endpoint, check=UnknownServer(), issuer=None) as connection,
    ):
        with pytest.raises(AttestedError):
            await call_unary(connection, RECOVER, bytes(5000))
    assert (nothing_happened(soft), soft.records.told) == (True, [])


async def test_who_asks_too_often_is_told_when_to_come_again(soft: RecoveryBed) -> None:
    async with running(soft, calls_per_second=0.001, call_burst=2) as node:
        error = await error_of(node.endpoint, soft)
        reasons = node.reasons()
    assert (error.code, set(reasons)) == ("RECOVERY_BROKEN_OFF", {"ADMIN_RATE"})
    assert error.retry_after_seconds > 0
    assert nothing_happened(soft)


# ---- the same again, broken off, at the same time


async def test_a_request_that_was_heard_counts_nowhere_again(
    soft: RecoveryBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[bytes, Any]] = []

    async def listening(connection: Any, method: str, request: bytes, **known: Any) -> bytes:
        if method == RECOVER:
            heard.append((request, known["metadata"]))
        return await call_unary(connection, method, request, **known)

    monkeypatch.setattr(recovery_client, "call_unary", listening)
    wrong = replace(soft.cluster, ring=with_another_secret(soft.cluster.ring))
    async with running(soft) as node:
        assert (await error_of(node.endpoint, soft, keys=wrong)).code == "RECOVERY_KEY_WRONG"
        ((request, metadata),) = heard
        async with open_connection(node.endpoint, check=UnknownServer(), issuer=None) as connection:
            with pytest.raises(AttestedError):
                await call_unary(connection, RECOVER, request, metadata=metadata)
        assert node.reasons() == ["CHALLENGE_UNKNOWN", "CHALLENGE_UNKNOWN"]  # told by both processes
    assert nothing_happened(soft)


async def test_a_request_does_not_count_on_another_connection(
    soft: RecoveryBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(soft) as node:

        async def elsewhere(connection: Any, method: str, request: bytes, **known: Any) -> bytes:
            if method != RECOVER:
                return await call_unary(connection, method, request, **known)
            async with open_connection(node.endpoint, check=UnknownServer(), issuer=None) as other:
                return await call_unary(other, method, request, **known)

        monkeypatch.setattr(recovery_client, "call_unary", elsewhere)
        await error_of(node.endpoint, soft)
        assert set(node.reasons()) == {"CHANNEL_NOT_BOUND"}
    assert nothing_happened(soft)


@pytest.mark.parametrize("after", [0, 1, 2], ids=["nothing", "the identity", "the evidence"])
async def test_a_connection_cut_after_leaves_the_node_waiting(soft: RecoveryBed, after: int) -> None:
    question = soft.question()
    async with running(soft) as node:
        server = UnknownServer()
        async with open_connection(node.endpoint, check=server, issuer=None) as connection:
            if after == 1:
                request = message_class("attested.v1.IdentifyRequest")(protocol_version=1).SerializeToString()
                await call_unary(connection, recovery_client.IDENTIFY, request)
            elif after == 2:
                await proven(connection, server, question, node="w-1", calls=recovery_client._CALLS)
        assert nothing_happened(soft)
        await recover(soft.node(node.endpoint), soft.rescuer())
    assert len(soft.opening.opened) == 1


async def test_a_connection_cut_while_the_disk_is_opened_loses_nothing(soft: RecoveryBed) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)

    soft.opening.acts = [wait]
    async with running(soft) as node:
        cut = asyncio.create_task(recover(soft.node(node.endpoint), soft.rescuer()))
        await asyncio.wait_for(begun.wait(), 60)
        cut.cancel()
        await asyncio.gather(cut, return_exceptions=True)
        assert (await error_of(node.endpoint, soft)).code == "RECOVERY_RACE_LOST"
        go_on.set()
        assert await asyncio.to_thread(soft.contest.wait, 60)
        assert (await error_of(node.endpoint, soft)).code == "RECOVERY_RACE_LOST"
    assert len(soft.opening.opened) == 1


async def test_two_admins_at_once_open_it_once(real: RecoveryBed) -> None:
    async with running(real) as node:
        nodes = [real.node(node.endpoint)] * 2
        outcomes = await recover_all(nodes, real.rescuer(), patience=Patience(), report=lambda _one: None)
    assert {one.state for one in outcomes} == {State.RECOVERED, State.ALREADY}
    assert len(real.opening.opened) == 1


async def test_the_first_right_key_wins_fifty_times(tmp_path: Path, keys: Keys) -> None:
    """A ticket and an admin, each with the right key, started together; the order is turned round every other time."""
    winners: list[Contender] = []
    bed = RecoveryBed(tmp_path, keys=keys)
    for number in range(50):
        bed.contest, bed.opening.opened = Contest(), []
        bed.records.told.clear()
        bed.unlocking._contest = bed.contest
        ticket, asked = bed.offer(), bed.asked()

        def rejoin(ticket: Any = ticket) -> str:
            try:
                bed.unlocking.offer(ticket, by=Contender.REJOIN, record=lambda: None)
            except AttestedError as error:
                return error.code
            return ""

        def recovery(asked: Any = asked) -> str:
            answer = message_class("recoverproto.RecoverResponse").FromString(
                bed.desk.recover(asked, correlation_id="c")
            )
            return str(answer.code)

        first, second = (rejoin, recovery) if number % 2 else (recovery, rejoin)
        codes = await asyncio.gather(asyncio.to_thread(first), asyncio.to_thread(second))
        assert sorted(codes) == ["", "RECOVERY_RACE_LOST"]
        assert len(bed.opening.opened) == 1
        assert bed.contest.winner is not None
        winners.append(bed.contest.winner)
    assert len(winners) == 50
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - no path is asked in a coroutine


# ---- many nodes, and what is left in memory


async def test_a_whole_cluster_is_recovered_and_each_failure_stands_apart(
    machine_of: Callable[..., Any], tmp_path: Path, keys: Keys
) -> None:
    places = [tmp_path / name for name in "abc"]
    for place in places:
        place.mkdir()
    beds = [RecoveryBed(place, attester=machine_of(place.name), keys=keys) for place in places]
    identities = []
    for number, bed in enumerate(beds):
        with bed.attester() as one:
            identities.append(identity_of(one.ek, f"w-{number}"))
    policy = type(beds[0].question().policy)(profiles=[learned(beds[0].boot)], identities=identities)
    beds[1].boot = boots.load("deb13-cmdline")  # its logs are another boot's than its registers
    told: list[Outcome] = []
    async with running(beds[0]) as zero, running(beds[1]) as one_, running(beds[2]) as two:
        nodes = [
            bed.node(node.endpoint, name=f"w-{number}")
            for number, (bed, node) in enumerate(zip(beds, (zero, one_, two), strict=True))
        ]
        nodes.append(beds[0].node("127.0.0.1:1", name="w-3"))
        outcomes = await recover_all(
            nodes, beds[0].rescuer(policy=policy), patience=Patience(seconds=2), report=told.append
        )
    assert [one.state for one in outcomes] == [State.RECOVERED, State.FAILED, State.RECOVERED, State.SILENT]
    assert sorted(one.node for one in told) == ["w-0", "w-1", "w-2", "w-3"]
    assert beds[1].opening.opened == []


async def test_the_long_running_process_never_holds_a_key(
    machine_of: Callable[..., Any], swtpms: Callable[..., Swtpm], memory: Path, disk: Path, keys: Keys, tmp_path: Path
) -> None:
    """A locked node as a process of its own: what it knows is found in its memory, the keys are not."""
    bed = RecoveryBed(memory, attester=machine_of(), keys=keys)
    question = bed.question()
    settings = {
        "cluster_id": bed.cluster_id.hex(),
        "tcti": machine_of.tcti["a"],  # type: ignore[attr-defined]
        "locks": str(tmp_path / "locks"),
        "device": str(disk),
        "disk": DISK.uuid,
        "program": bed.program,
        "boot": BOOT,
        "join_ca": bed.ca.certificate.decode(),
        "directory": str(memory),
    }
    del swtpms
    node = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        recovery_node.__name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert node.stdin is not None
    assert node.stdout is not None
    try:
        node.stdin.write(json.dumps(settings).encode() + b"\n")
        port = int(await node.stdout.readline())
        await recover(bed.node(f"127.0.0.1:{port}"), Rescuer(admin=bed.admin, keys=bed.cluster, question=question))
        found = {
            name: memory_holds(node.pid, needle)
            for name, needle in {
                "cluster id": bed.cluster_id,
                "disk key": bed.right.disk_key.reveal(),
                "measurement secret": bed.right.measurement_secret.reveal(),
                "master key": bed.bundle.master.key.reveal(),
            }.items()
        }
    finally:
        node.kill()
        await node.wait()
    assert found == {"cluster id": True, "disk key": False, "measurement secret": False, "master key": False}
    assert (memory / "taken").read_bytes() == bed.right.disk_key.reveal()
    records = b"".join(path.read_bytes() for path in (memory / "audit").iterdir())
    assert b'"event":"recovery"' in records
    assert bed.right.disk_key.reveal().hex().encode() not in records
