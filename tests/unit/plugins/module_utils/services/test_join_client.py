# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of asking: whom, in which order, what may be tried again, and what a gRPC status means."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TpmError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services import join_client
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_endpoints import Favourite, Targets
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import pause_before_retry
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

PINS = JoinCaPins.from_pem(make_join_ca("prod", now=datetime(2026, 11, 21, tzinfo=UTC)).certificate)


def config(*endpoints: str, own: tuple[str, ...] = ()) -> join_client.JoinConfig:
    return join_client.JoinConfig(
        endpoints=endpoints, pins=PINS, cluster_id=b"c" * 32, node_name="w-1", own_addresses=frozenset(own)
    )


def machine(**changes: Any) -> Any:
    """Return what finds others, without a TPM: nothing here gets so far."""
    nothing = SimpleNamespace(release=lambda: None)
    found = {"attester": nothing, "clock": None, "resolver": None, "random": SeededRandom(1), "favourite": Favourite()}
    return SimpleNamespace(**{**found, **changes})


@pytest.mark.parametrize("role", list(Role))
def test_a_machine_says_as_what_it_asks(role: Role) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    logs = EventLogs(firmware=b"", userspace=b"", nodelock=b"", command_line=b"")
    sent = join_client._request(replace(config(), role=role), logs, SecretBytes(pem))
    asked = message_class("join.IssueJoinTicketRequest").FromString(sent)
    assert asked.is_control_plane is (role is Role.CONTROL_PLANE)
    assert config().role is Role.WORKER


@pytest.mark.parametrize(
    "endpoints", [pytest.param((), id="no endpoint"), pytest.param(("10.0.0.11:9090",), id="only itself")]
)
def test_a_node_without_another_service_says_so(endpoints: tuple[str, ...]) -> None:
    with pytest.raises(TransportError) as caught:
        join_client.fetch_ticket(config(*endpoints, own=("10.0.0.11",)), machine())
    assert caught.value.code == "JOIN_SERVICES_UNKNOWN"


def test_each_endpoint_is_tried_once_and_every_story_stays() -> None:
    """Nobody listens at either."""
    tried: list[str] = []
    with pytest.raises(AttestedError) as caught:
        join_client.fetch_ticket(
            config("127.0.0.1:1", "127.0.0.1:2"), machine(), tried=lambda where, error: tried.append(f"{where} {error}")
        )
    assert sorted(one.split()[0] for one in tried) == ["127.0.0.1:1", "127.0.0.1:2"]
    assert caught.value.code == "PEER_UNREACHABLE"
    assert "127.0.0.1:1" in caught.value.message
    assert "127.0.0.1:2" in caught.value.message


def nothing() -> None:
    """Have nothing to release."""


class Service:
    """What stands at the endpoints: an error each, or an answer where there is none."""

    def __init__(self, **errors: AttestedError) -> None:
        self.errors = errors
        self.asked: list[str] = []

    async def attempt(self, target: str) -> str:
        """Fail or answer by the last number of the address."""
        self.asked.append(target)
        number = f"cp{target.partition(':')[0].rpartition('.')[2]}"
        if number in self.errors:
            raise self.errors[number]
        return f"the answer of {number}"


def around(seed: int = 1) -> Targets:
    return Targets(
        endpoints=("10.0.0.1:9090", "10.0.0.2:9090", "10.0.0.3:9090"),
        own=frozenset(),
        parse=join_client.parse_endpoint,
        resolver=NobodysAddress(),
        random=SeededRandom(seed),
    )


class NobodysAddress:
    """A machine without an address of its own."""

    def addresses(self, host: str) -> tuple[str, ...]:
        """Know no name."""
        raise TransportError(f"expected addresses of {host}, got: none", reason=Reason.PEER_UNREACHABLE)

    def is_own(self, address: str) -> bool:
        """Say no."""
        del address
        return False


def error_of(reason: Reason) -> AttestedError:
    return AttestedError("expected A, got B", reason=reason)


@pytest.mark.parametrize("seed", range(8))
def test_one_good_service_is_enough_whatever_the_others_say(seed: int) -> None:
    service = Service(cp1=error_of(Reason.TICKET_SIGNATURE), cp2=error_of(Reason.JOIN_CA_MISMATCH))
    target, answered = join_client.first_answer(around(seed), service.attempt, release=nothing)
    assert (target.endpoint, answered) == ("10.0.0.3:9090", "the answer of cp3")


def test_who_answered_or_refused_last_is_asked_first() -> None:
    targets = around()
    join_client.first_answer(targets, Service(cp1=error_of(Reason.PEER_UNREACHABLE)).attempt, release=nothing)
    chosen = str(targets.favourite.target)
    refusing = Service(**{f"cp{number}": error_of(Reason.TICKET_REFUSED) for number in (1, 2, 3)})
    with pytest.raises(AttestedError):
        join_client.first_answer(targets, refusing.attempt, release=nothing)
    assert refusing.asked[0] == chosen
    again = Service()
    join_client.first_answer(targets, again.attempt, release=nothing)
    assert again.asked == [refusing.asked[-1]]


def test_a_fault_of_this_machine_ends_the_round() -> None:
    service = Service(**{f"cp{number}": TpmError("no TPM", reason=Reason.TPM_UNREACHABLE) for number in (1, 2, 3)})
    with pytest.raises(TpmError):
        join_client.first_answer(around(), service.attempt, release=nothing)
    assert len(service.asked) == 1


class RefusingConnection:
    """A connection whose calls end with one gRPC status."""

    error = None

    def __init__(self, status: grpc.StatusCode, text: str, *more: tuple[str, str]) -> None:
        trailing = grpc.aio.Metadata(("attested-correlation-id", "abc123"), *more)
        self._error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, details=text)

    def channel(self) -> RefusingConnection:
        return self

    def unary_unary(self, method: str) -> Any:
        async def refuse(request: bytes, **options: object) -> bytes:
            raise self._error

        return refuse


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(grpc.StatusCode.PERMISSION_DENIED, "TICKET_REFUSED", id="refused"),
        pytest.param(grpc.StatusCode.UNAUTHENTICATED, "TICKET_REFUSED", id="turned away at the door"),
        pytest.param(grpc.StatusCode.INVALID_ARGUMENT, "JOIN_REQUEST_NOT_UNDERSTOOD", id="not understood"),
        pytest.param(grpc.StatusCode.UNIMPLEMENTED, "JOIN_REQUEST_NOT_UNDERSTOOD", id="an older service"),
        pytest.param(grpc.StatusCode.UNAVAILABLE, "JOIN_SERVICE_UNAVAILABLE", id="not ready"),
        pytest.param(grpc.StatusCode.DEADLINE_EXCEEDED, "JOIN_SERVICE_UNAVAILABLE", id="too slow"),
        pytest.param(grpc.StatusCode.RESOURCE_EXHAUSTED, "JOIN_SERVICE_BUSY", id="too many"),
        pytest.param(grpc.StatusCode.INTERNAL, "JOIN_SERVICE_UNAVAILABLE", id="broken"),
    ],
)
async def test_a_status_becomes_a_reason_with_the_correlation_id(status: grpc.StatusCode, code: str) -> None:
    connection: Any = RefusingConnection(status, "attestation refused")
    with pytest.raises(TransportError) as caught:
        await join_client.call(connection, join_client.CHALLENGE, b"")
    assert caught.value.code == code
    assert "abc123" in caught.value.message


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(grpc.StatusCode.PERMISSION_DENIED, "EVIDENCE_REFUSED", id="refused"),
        pytest.param(grpc.StatusCode.UNAUTHENTICATED, "EVIDENCE_REFUSED", id="turned away at the door"),
        pytest.param(grpc.StatusCode.INVALID_ARGUMENT, "JOIN_REQUEST_NOT_UNDERSTOOD", id="not understood"),
        pytest.param(grpc.StatusCode.UNAVAILABLE, "JOIN_SERVICE_UNAVAILABLE", id="not ready"),
        pytest.param(grpc.StatusCode.RESOURCE_EXHAUSTED, "JOIN_SERVICE_BUSY", id="too many"),
    ],
)
async def test_a_push_of_evidence_never_speaks_of_a_ticket(status: grpc.StatusCode, code: str) -> None:
    connection: Any = RefusingConnection(status, "attestation refused")
    with pytest.raises(TransportError) as caught:
        await join_client.call(connection, join_client.REATTEST, b"", wanted=join_client.EVIDENCE)
    assert caught.value.code == code
    assert "ticket" not in caught.value.message


async def test_a_broken_connection_outweighs_what_grpc_says_of_it() -> None:
    connection: Any = RefusingConnection(grpc.StatusCode.UNAVAILABLE, "connection reset")
    connection.error = TransportError("the relay closed", reason=Reason.CONNECTION_CLOSED)
    with pytest.raises(TransportError) as caught:
        await join_client.call(connection, join_client.CHALLENGE, b"")
    assert caught.value.code == "CONNECTION_CLOSED"


@pytest.mark.parametrize(
    ("told", "pause"),
    [
        pytest.param("1500", 1.5, id="a time"),
        pytest.param("99999999", 60.0, id="a time that is too long"),
        pytest.param("soon", 1.0, id="no number"),
        pytest.param("-5", 1.0, id="a negative number"),
    ],
)
async def test_a_busy_service_says_when_to_ask_again(told: str, pause: float) -> None:
    header = ("attested-retry-after-milliseconds", told)
    connection: Any = RefusingConnection(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many", header)
    with pytest.raises(TransportError) as caught:
        await join_client.call(connection, join_client.CHALLENGE, b"")
    assert pause_before_retry(caught.value) == pause
