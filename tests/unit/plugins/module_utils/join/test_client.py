# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of asking: whom, in which order, what may be tried again, and what a gRPC status means."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.atls import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.join import client
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

PINS = JoinCaPins.from_pem(make_join_ca("prod", now=datetime(2026, 11, 21, tzinfo=UTC)).certificate)


def config(*endpoints: str, own: tuple[str, ...] = ()) -> client.JoinConfig:
    return client.JoinConfig(
        endpoints=endpoints, pins=PINS, cluster_id=b"c" * 32, node_name="w-1", own_addresses=frozenset(own)
    )


def test_a_node_never_asks_itself() -> None:
    asked = config("10.0.0.11:9090", "10.0.0.12:9090", "[fd00::1]:9090", own=("10.0.0.11", "fd00::1")).others()
    assert asked == ("10.0.0.12:9090",)


@pytest.mark.parametrize(
    "endpoints", [pytest.param((), id="no endpoint"), pytest.param(("10.0.0.11:9090",), id="only itself")]
)
def test_a_node_without_another_service_says_so(endpoints: tuple[str, ...]) -> None:
    with pytest.raises(TransportError) as caught:
        config(*endpoints, own=("10.0.0.11",)).others()
    assert caught.value.code == "JOIN_SERVICES_UNKNOWN"


def test_each_endpoint_is_tried_once_and_the_most_telling_error_stays() -> None:
    """Nobody listens at the first two; the third name cannot be an endpoint of another cluster's node."""
    tried: list[str] = []
    machine: Any = SimpleNamespace(attester=None, clock=None)
    with pytest.raises(AttestedError) as caught:
        client.fetch_ticket(
            config("127.0.0.1:1", "127.0.0.1:2"), machine, tried=lambda where, error: tried.append(f"{where} {error}")
        )
    assert [one.split()[0] for one in tried] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert caught.value.code == "PEER_UNREACHABLE"
    assert "127.0.0.1:1" in caught.value.message
    assert "127.0.0.1:2" in caught.value.message


def error_of(reason: Reason) -> AttestedError:
    return AttestedError("expected A, got B", reason=reason)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        pytest.param(
            [Reason.PEER_UNREACHABLE, Reason.TICKET_REFUSED], Reason.TICKET_REFUSED, id="a refusal over an absence"
        ),
        pytest.param(
            [Reason.JOIN_CLUSTER_MISMATCH, Reason.TICKET_REFUSED],
            Reason.JOIN_CLUSTER_MISMATCH,
            id="what never passes over what waits",
        ),
        pytest.param([Reason.PEER_UNREACHABLE], Reason.PEER_UNREACHABLE, id="the only one"),
    ],
)
def test_which_error_a_person_sees(reasons: list[Reason], expected: Reason) -> None:
    errors = [(f"host-{number}:9090", error_of(reason)) for number, reason in enumerate(reasons)]
    assert client.most_telling(errors).reason is expected


@pytest.mark.parametrize(
    ("reason", "again"),
    [
        pytest.param(Reason.PEER_UNREACHABLE, True, id="nobody there yet"),
        pytest.param(Reason.JOIN_SERVICE_UNAVAILABLE, True, id="not ready"),
        pytest.param(Reason.TICKET_REFUSED, True, id="refused: an admin may still approve"),
        pytest.param(Reason.TICKET_SIGNATURE, False, id="a forged ticket"),
        pytest.param(Reason.TICKET_NOT_OURS, False, id="another node's ticket"),
        pytest.param(Reason.SEAL_UNOPENABLE, False, id="a box that does not open"),
    ],
)
def test_what_may_be_tried_again(reason: Reason, again: bool) -> None:
    assert (client.pause_before_retry(error_of(reason)) is not None) is again


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
        await client.call(connection, client.CHALLENGE, b"")
    assert caught.value.code == code
    assert "abc123" in caught.value.message


async def test_a_broken_connection_outweighs_what_grpc_says_of_it() -> None:
    connection: Any = RefusingConnection(grpc.StatusCode.UNAVAILABLE, "connection reset")
    connection.error = TransportError("the relay closed", reason=Reason.CONNECTION_CLOSED)
    with pytest.raises(TransportError) as caught:
        await client.call(connection, client.CHALLENGE, b"")
    assert caught.value.code == "CONNECTION_CLOSED"


@pytest.mark.parametrize(
    ("told", "pause"),
    [
        pytest.param("1500", 1.5, id="a time"),
        pytest.param("99999999", 60.0, id="a time that is too long"),
        pytest.param("soon", 2.0, id="no number"),
        pytest.param("-5", 2.0, id="a negative number"),
    ],
)
async def test_a_busy_service_says_when_to_ask_again(told: str, pause: float) -> None:
    header = ("attested-retry-after-milliseconds", told)
    connection: Any = RefusingConnection(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many", header)
    with pytest.raises(TransportError) as caught:
        await client.call(connection, client.CHALLENGE, b"")
    assert client.pause_before_retry(caught.value) == pause
