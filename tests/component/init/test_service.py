# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An init over real sockets and TLS, a real TPM where the TPM matters: good, broken off, relayed, refused."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import InitFailed, initiate
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import (
    IDENTIFY,
    INIT,
    TESTIFY,
    Progress,
    Success,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_service import (
    InitServiceConfig,
    init_network_side,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import call
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import UnknownServer
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import open_connection
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Health
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.init_bed import (
    KUBECONFIG,
    InitBed,
    Waiting,
    failing,
    running,
)
from ansible_collections.attested.kubernetes.tests.support.replay import replay
from ansible_collections.attested.kubernetes.tests.support.two_processes import PLENTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm


@pytest.fixture
def real(swtpm: Swtpm, opened: Opened) -> InitBed:
    """A machine with a real TPM that has booted."""
    recorded = boots.load("deb13-base")
    with opened(swtpm) as tpm:
        replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)

    @contextmanager
    def attester() -> Iterator[Attester]:
        with opened(swtpm) as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    return InitBed(attester=attester)


@pytest.fixture
def soft() -> InitBed:
    return InitBed()


async def everything(endpoint: str, bed: InitBed, **changes: Any) -> list[Progress | Success]:
    asked = {name: changes.pop(name) for name in ("role", "boot") if name in changes}
    return [one async for one in initiate(endpoint, bed.wish(**changes), bed.question(**asked))]


async def error_of(endpoint: str, bed: InitBed, **changes: Any) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        await everything(endpoint, bed, **changes)
    return caught.value


async def test_a_cluster_is_made_on_a_machine_that_proved_itself(real: InitBed) -> None:
    async with running(real) as machine:
        *progress, last = await everything(machine.endpoint, real)
    assert last == Success(kubeconfig=KUBECONFIG, cluster_id=real.cluster_id)
    assert [one.stage for one in progress if isinstance(one, Progress)] == ["Make the cluster"]
    assert [bundle for _order, bundle, _digest, _judged in real.founding.founded] == [real.bundle]


async def test_progress_arrives_while_the_work_goes_on(soft: InitBed) -> None:
    waiting = Waiting()
    soft.founding.acts = [waiting]
    async with running(soft) as machine, aclosing(initiate(machine.endpoint, soft.wish(), soft.question())) as said:
        first = await anext(said)
        assert isinstance(first, Progress)
        assert not waiting.go_on.is_set()
        waiting.go_on.set()
        assert isinstance(await anext(said), Success)


@pytest.mark.parametrize("killed", [False, True], ids=["the connection broke", "the network side was killed"])
async def test_broken_off_the_work_goes_on_and_is_found_again(soft: InitBed, killed: bool) -> None:
    waiting = Waiting()
    soft.founding.acts = [waiting]
    async with running(soft) as machine:
        async with aclosing(initiate(machine.endpoint, soft.wish(), soft.question())) as said:
            await anext(said)
            if killed:
                await machine.close()
                with pytest.raises(AttestedError) as caught:
                    await anext(said)
                assert caught.value.retryable  # type: ignore[attr-defined]
        if killed:
            await machine.open()
        again = asyncio.create_task(everything(machine.endpoint, soft))
        await asyncio.to_thread(waiting.begun.wait, 60)
        waiting.go_on.set()
        assert isinstance((await again)[-1], Success)
    assert len(soft.founding.founded) == 1


async def test_two_admins_at_once_and_the_other_request_is_refused_by_name(soft: InitBed) -> None:
    waiting = Waiting()
    soft.founding.acts = [waiting]
    async with running(soft) as machine:
        first = asyncio.create_task(everything(machine.endpoint, soft))
        await asyncio.to_thread(waiting.begun.wait, 60)
        refused = await error_of(machine.endpoint, soft, kubernetes_version="1.36.0")
        waiting.go_on.set()
        assert isinstance((await first)[-1], Success)
    assert refused.code == "INIT_REQUEST_DIFFERS"
    assert len(soft.founding.founded) == 1


async def test_a_failing_step_is_named_with_its_last_lines(soft: InitBed) -> None:
    failed = KubeadmError("expected phase certs to end well", reason=Reason.KUBEADM_PHASE_FAILED)
    soft.founding.acts = [failing(failed, "disk full", "token=hunter22"), lambda _teller: None]
    async with running(soft) as machine:
        error = await error_of(machine.endpoint, soft)
        assert isinstance((await everything(machine.endpoint, soft))[-1], Success)
    assert isinstance(error, InitFailed)
    assert (error.code, error.failure.task) == ("KUBEADM_PHASE_FAILED", "Set up the control plane")
    assert error.failure.log == "disk full\ntoken=[redacted]"


# ---- machines that are not the one that is meant


async def test_another_boot_gets_no_keys(real: InitBed) -> None:
    async with running(real) as machine:
        error = await error_of(machine.endpoint, real, boot=boots.load("deb13-cmdline"))
    assert (error.code, real.founding.founded) == ("PCR_MISMATCH", [])


async def test_a_worker_gets_no_keys(soft: InitBed) -> None:
    async with running(soft) as machine:
        error = await error_of(machine.endpoint, soft, role=Role.WORKER)
    assert (error.code, soft.founding.founded) == ("ROLE_NOT_REGISTERED", [])


class Relay:
    """Asks the genuine machine what its own caller asks, over its own connection: a proxy that ends TLS."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    async def identity(self, **_known: Any) -> bytes:
        return await self._pass_on(IDENTIFY, b"")

    async def testimony(self, challenge: bytes, **_known: Any) -> bytes:
        return await self._pass_on(TESTIFY, challenge)

    async def _pass_on(self, method: str, request: bytes) -> bytes:
        async with open_connection(self.endpoint, check=UnknownServer(), issuer=None) as connection:
            return await call(connection, method, request)


async def test_a_relay_in_between_gets_no_keys(real: InitBed) -> None:
    async with running(real) as machine:
        directory = machine.directory / "relay"
        directory.mkdir()
        config = InitServiceConfig(listen_address="127.0.0.1", listen_port=0, runtime_directory=directory, **PLENTY)
        health = Health(Notifier({}), version="relay", parts=())
        relay: Any = Relay(machine.endpoint)
        front = init_network_side(config, port=relay, health=health, log=machine.log, clock=SystemClock())
        try:
            error = await error_of(f"127.0.0.1:{await front.start()}", real)
        finally:
            await front.stop(grace_seconds=0.0)
    assert (error.code, real.founding.founded) == ("CHANNEL_NOT_BOUND", [])


# ---- admins that are none


async def test_a_stranger_hears_one_text_and_the_log_the_story(soft: InitBed) -> None:
    soft.admin = InitBed().admin
    async with running(soft) as machine:
        error = await error_of(machine.endpoint, soft)
        reasons = machine.reasons()
    assert (error.code, soft.founding.founded) == ("ADMIN_REQUEST_REFUSED", [])
    assert "attestation refused" in error.message
    assert "ADMIN" not in error.message
    assert set(reasons) == {"ADMIN_CERTIFICATE_UNTRUSTED"}


async def test_an_empty_request_begins_nothing(soft: InitBed) -> None:
    async with (
        running(soft) as machine,
        open_connection(machine.endpoint, check=UnknownServer(), issuer=None) as connection,
    ):
        with pytest.raises(Exception, match="attestation refused"):
            await anext(aiter(connection.channel().unary_stream(INIT)(b"", timeout=30)))
        assert set(machine.reasons()) == {"CHALLENGE_UNKNOWN"}


async def test_who_asks_too_often_is_told_when_to_come_again(soft: InitBed) -> None:
    async with running(soft, calls_per_second=0.01, call_burst=2) as machine:
        error = await error_of(machine.endpoint, soft)
        reasons = machine.reasons()
    assert (error.code, set(reasons)) == ("INIT_BROKEN_OFF", {"ADMIN_RATE"})
    assert error.retry_after_seconds > 10
    assert soft.founding.founded == []


async def test_without_a_bootstrapper_the_service_says_not_now(soft: InitBed) -> None:
    async with running(soft) as machine:
        machine.socket.unlink()
        error = await error_of(machine.endpoint, soft)
        reasons = machine.reasons()
    assert (error.code, set(reasons)) == ("INIT_BROKEN_OFF", {"BOOTSTRAPPER_UNREACHABLE"})
